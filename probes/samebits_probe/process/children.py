"""Lifetime of processes: none outlives its parent or the job that started it.

Uses prctl(2) on Linux: a process can be killed when its parent ends, and a process can become the
parent of all orphaned descendants, whatever session they are in. Other systems have neither.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MAX_SECONDS = 5.0
"""Seconds spent on ending orphans. If new ones still appear, they are started faster than ended."""


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Make this process end at once when ``parent``, its parent, does: by a signal."""
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it ended before prctl was called
        os._exit(1)


def inherit_orphans() -> None:
    """Make this process the parent of each descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_first_for_oom_killer() -> None:
    """Make this process the kernel's first choice to kill when memory runs out.

    The other processes of a run are needed by more than one job.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def end_orphans(jobs: Collection[int]) -> None:
    """Kill the processes that this one inherited, and their descendants, until none is left.

    A child in another session that is none of ``jobs`` is inherited, because every job starts a
    session.
    """
    deadline = time.monotonic() + _MAX_SECONDS
    while (orphans := _orphans(jobs)) and time.monotonic() < deadline:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _orphans(jobs: Collection[int]) -> list[int]:
    own_pid, session = os.getpid(), os.getsid(0)
    orphans = []
    for pid in _process_ids():
        parent, process_session = _parent_and_session(pid)
        if parent == own_pid and process_session != session and int(pid) not in jobs:
            orphans.append(int(pid))
    return orphans


def _process_ids() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  names only
    except OSError:
        return []


def _parent_and_session(pid: str) -> tuple[int, int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0, 0
    # "pid (name) state ppid pgrp session …"; a name may contain spaces and brackets
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

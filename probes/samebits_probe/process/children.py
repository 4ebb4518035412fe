"""No process outlives what it was started for: neither its parent, nor the job that started it.

The kernel's own means, where there are any (Linux, prctl(2)): a process that is to die with its
parent, and one that inherits what its descendants leave behind, wherever these hide.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 5.0
"""Seconds after which what still appears is left alone: something starts processes faster."""


def end_with(parent: int) -> None:
    """Make this process end at once when ``parent``, its parent, does."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it was asked
        os._exit(1)


def inherit_orphans() -> None:
    """Make this process the parent of each descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_the_first_to_go() -> None:
    """Let the kernel end this process, and not one that others depend on, when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def end_orphans(known: Collection[int]) -> None:
    """End the processes that this one inherited, and theirs, until none is left.

    Inherited are children of other sessions that are not ``known``: every job begins a session.
    """
    deadline = time.monotonic() + _PATIENCE
    while (orphans := _orphans(known)) and time.monotonic() < deadline:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _orphans(known: Collection[int]) -> list[int]:
    own, session = os.getpid(), os.getsid(0)
    found = []
    for entry in _processes():
        parent, of_session = _parent_and_session(entry)
        if parent == own and of_session != session and int(entry) not in known:
            found.append(int(entry))
    return found


def _processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  names alone
    except OSError:
        return []


def _parent_and_session(pid: str) -> tuple[int, int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0, 0
    # "pid (name) state ppid pgrp session …", where a name may hold spaces and brackets
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

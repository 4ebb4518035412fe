"""Processes of stacks that stay between runs, each behind a socket: where they are, and how to ask them.

probes/samebits_warm.py is such a process. Its place is named after all that its imports depend on, and after all
that a process inherits. A run with other variables, packages, limits or namespaces has another place, so
it never computes in a process that is not as its own would be.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from samebits.base.digests import digest_of
from samebits.records.record import Record
from samebits.stacks import probes
from samebits.stacks.build import Stack
from samebits.stacks.process import Process, Starter, start_process
from samebits_wire.places import OF_A_RUN, STAMP

NEEDS = "it needs Linux, and a folder for sockets that only you may enter ($XDG_RUNTIME_DIR, or $TMPDIR)"
SUFFIX = ".keeper"
_INHERITED = ("Umask", "Cpus_allowed", "Mems_allowed", "CapEff", "NoNewPrivs", "Seccomp")
"""Lines of /proc/self/status on what a process has from its parent."""
_NAMESPACES = ("mnt", "net", "pid", "user", "ipc", "uts")
_LONGEST = 100
"""Bytes of the path of a socket: unix(7) allows 108."""
_ANSWER = 1 << 16
"""Maximum bytes of an answer."""
_TIME_TO_ANSWER = 5.0
"""Seconds: a process that imports, or that is stopped, does not answer."""


class Keeper(Record):
    """What a process says that stays between runs."""

    pid: int
    environment: str
    """Folder of its environment."""
    running: int
    """Runs that use it now."""
    runs: int
    """Runs that have used it."""
    unused: float
    """Seconds since the last run; 0 while it is used."""
    ends_in: float
    """Seconds until it ends if no run uses it."""
    memory: int
    """Bytes: its own pages, and its share of those that it shares with others."""


def home(environ: Mapping[str, str]) -> Path | None:
    """Return the user's folder of sockets, which is made if it is missing.

    None where there can be none: not on Linux, if the folder is another user's or open to others, or if its path
    is too long for a socket.
    """
    if sys.platform != "linux":
        return None
    runtime = environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "samebits" if runtime else _temporary()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if is_own and not status.st_mode & 0o077 and len(os.fsencode(folder)) < _LONGEST - 30:
            return folder
    return None


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"samebits-{os.getuid()}"


def can_stay(stack: Stack) -> bool:
    """Return True if what a stack imports is kept by samebits alone, so that no one changes it meanwhile."""
    return stack.system is None and stack.source is None


def starter(folder: Path, stack: Stack, digest: str, seconds: float) -> Starter:
    """Return what starts the process of a stack by its keeper, which stays for ``seconds`` after the run.

    ``digest`` is that of the probes.
    """

    async def start(python: str, environment: Mapping[str, str], log: Path) -> Process:
        place = place_of(folder, stack, digest, environment)
        words = (str(probes.WARM), str(place), str(seconds))
        return await start_process(str(_beyond_links(python)), environment, log, words)

    return start


def place_of(folder: Path, stack: Stack, digest: str, environment: Mapping[str, str]) -> Path:
    """Return the path of the socket of a stack's keeper for a run with these variables."""
    python = _beyond_links(stack.python)
    stamp = (python.parents[1] / STAMP).stat()
    variables = {k: v for k, v in environment.items() if k not in OF_A_RUN}
    parts = [str(python), stamp.st_mtime_ns, stamp.st_ino, digest, sorted(variables.items())]
    return folder / (digest_of([*parts, *_inherited()])[:16] + SUFFIX)


def _beyond_links(python: str) -> Path:
    """Return the interpreter in the environment's own folder, which outlives a project's link to it."""
    folder, name = Path(python).parent, Path(python).name
    return folder.resolve() / name


def _inherited() -> Iterator[str]:
    """Yield what a process has from its parent: limits, rights, priority, namespaces."""
    own = Path("/proc/self")
    for line in (own / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith(tuple(f"{name}:" for name in _INHERITED)):
            yield line
    for name in ("limits", "cgroup"):
        yield (own / name).read_text("utf-8", "replace")
    yield str(os.getpriority(os.PRIO_PROCESS, 0))
    for name in _NAMESPACES:
        with contextlib.suppress(OSError):
            yield str((own / "ns" / name).readlink())


def keepers(folder: Path, *, end: bool = False) -> list[Keeper]:
    """Return the processes that answer in a folder; with ``end`` each ends after the runs that use it.

    What a killed process left is removed.
    """
    answered = map(partial(_asked, end=end), sorted(folder.glob(f"*{SUFFIX}")))
    return [keeper for keeper in answered if keeper is not None]


def _asked(place: Path, *, end: bool) -> Keeper | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_TIME_TO_ANSWER)
        try:
            connection.connect(str(place))
            connection.send(json.dumps({"ask": "end" if end else "facts"}).encode())
            return Keeper.model_validate_json(connection.recv(_ANSWER))
        except (ConnectionRefusedError, FileNotFoundError):
            place.unlink(missing_ok=True)
        except (OSError, ValidationError):
            pass
    return None

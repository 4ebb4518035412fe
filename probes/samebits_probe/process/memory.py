"""Is there memory for a dear question: what it needs, and what this job may still take.

A process that takes more than there is gets killed, and what it was about to observe is lost. What
explains only is therefore not tried where it does not fit. The bytes that a question needs follow from
the model's parameters; what is there is the least of the machine's and of every control group's
that this process is in, and each of the jobs that run at a time may take its part of it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from samebits_probe.process.failure import PhaseFailed

GIB = 1 << 30


def shortage(needs: int, slots: int, root: Path = Path("/")) -> str:
    """Return why so many bytes more are too many; '' if they are there, or nothing is known."""
    free = available(root)
    if free is None or needs <= free // slots:
        return ""
    part = f", of which each of {slots} jobs may take {_gib(free // slots)}" if slots > 1 else ""
    return f"it needs about {_gib(needs)} more memory, and {_gib(free)} are available{part}"


def require(needs: int, slots: int) -> None:
    """Raise a failure of phase ``memory`` where so many bytes more are too many.

    Raises:
        PhaseFailed: of a type that says that nothing went wrong.

    """
    if reason := shortage(needs, slots):
        told = {"phase": "memory", "type": "not asked", "traceback": ""}
        raise PhaseFailed(told | {"message": f"{reason}: {remedy(slots)}"})


def remedy(slots: int) -> str:
    """Return what lowers what a question needs, or raises what it may take."""
    return "use --jobs 1, or a machine with more memory" if slots > 1 else "use more memory"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def available(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still take; None where that cannot be known."""
    found = [_of_machine(root), *_of_groups(root)]
    known = [size for size in found if size is not None]
    return min(known) if known else None


def _of_machine(root: Path) -> int | None:
    """Return what the kernel holds to be available (proc(5))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _of_groups(root: Path) -> list[int | None]:
    """Return what each control group leaves, from the process's own up to the root."""
    found: list[int | None] = []
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                found += _up(root / "sys/fs/cgroup", path, "memory.max", "memory.current")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
                found += _up(root / "sys/fs/cgroup/memory", path, *names)
    return found


def _up(top: Path, path: str, limit: str, usage: str) -> list[int | None]:
    # in a container the group's own folder may be what is mounted, whatever its path says
    here = top / path.strip("/")
    folders = [here, *here.parents]
    return [_left(folder, limit, usage) for folder in folders[: folders.index(top) + 1]]


def _left(folder: Path, limit: str, usage: str) -> int | None:
    """Return the limit less what is used; files that the kernel can drop at once are not used."""
    with contextlib.suppress(OSError, ValueError):
        most = (folder / limit).read_text("ascii").strip()
        if most == "max":
            return None
        used = int((folder / usage).read_text("ascii"))
        return max(0, int(most) - used + _droppable(folder))
    return None


def _droppable(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (folder / "memory.stat").read_text("ascii").splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0

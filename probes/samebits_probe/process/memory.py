"""Memory that a step needs, compared with the memory that this job may still use.

A process that uses more than is available gets killed, and its remaining observations are lost.
Steps that only explain a difference are therefore skipped where they do not fit. The bytes that a
step needs follow from the model's parameters. The available memory is the minimum over the machine
and every control group of this process, divided by the number of jobs that run at a time.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from samebits_probe.process.failure import PhaseFailed

GIB = 1 << 30


def shortage(needs: int, slots: int, root: Path = Path("/")) -> str:
    """Return why ``needs`` more bytes are too many; '' if they fit, or if that is unknown."""
    free = available(root)
    if free is None or needs <= free // slots:
        return ""
    part = f", of which each of {slots} jobs may take {_gib(free // slots)}" if slots > 1 else ""
    return f"it needs about {_gib(needs)} more memory, and {_gib(free)} are available{part}"


def require(needs: int, slots: int) -> None:
    """Raise a failure of phase ``memory`` if ``needs`` more bytes are too many."""
    if reason := shortage(needs, slots):
        failure = {"phase": "memory", "type": "not asked", "traceback": ""}
        raise PhaseFailed(failure | {"message": f"{reason}: {remedy(slots)}"})


def remedy(slots: int) -> str:
    """Return what a user can change to make more memory available to a job."""
    return "use --jobs 1, or a machine with more memory" if slots > 1 else "use more memory"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def available(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still use; None where that is unknown."""
    candidates = [_machine_available(root), *_groups_available(root)]
    sizes = [size for size in candidates if size is not None]
    return min(sizes) if sizes else None


def _machine_available(root: Path) -> int | None:
    """Return the kernel's estimate of available bytes (proc(5))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _groups_available(root: Path) -> list[int | None]:
    """Return the bytes available in each control group, from the process's own to the root."""
    sizes: list[int | None] = []
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                sizes += _available_up_to_root(
                    root / "sys/fs/cgroup", path, "memory.max", "memory.current"
                )
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
                sizes += _available_up_to_root(root / "sys/fs/cgroup/memory", path, *names)
    return sizes


def _available_up_to_root(top: Path, path: str, limit: str, usage: str) -> list[int | None]:
    # in a container the mounted folder may be the group itself, whatever the path in cgroup is
    group = top / path.strip("/")
    folders = [group, *group.parents]
    return [_group_available(folder, limit, usage) for folder in folders[: folders.index(top) + 1]]


def _group_available(folder: Path, limit: str, usage: str) -> int | None:
    """Return the limit minus usage; file pages that the kernel can drop do not count as used."""
    with contextlib.suppress(OSError, ValueError):
        maximum = (folder / limit).read_text("ascii").strip()
        if maximum == "max":
            return None
        used = int((folder / usage).read_text("ascii"))
        return max(0, int(maximum) - used + _reclaimable(folder))
    return None


def _reclaimable(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (folder / "memory.stat").read_text("ascii").splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0

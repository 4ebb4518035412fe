"""What the descendants of this process hold, looked at once a second."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self


class MemoryWatch:
    """Records the most bytes that all descendants held at once; pages that they share count once."""

    def __init__(self, interval: float = 1.0) -> None:
        self.peak = 0
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            self.peak = max(self.peak, sum(map(anonymous_bytes, descendants(os.getpid()))))


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    below, waiting = [], [pid]
    while waiting:
        waiting += (of_parent := children.get(waiting.pop(), []))
        below += of_parent
    return below


def anonymous_bytes(pid: int) -> int:
    """Return the bytes of a process that belong to no file, and its share of what others share."""
    with suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) << 10
    return 0

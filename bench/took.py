"""What a command takes: seconds, CPU seconds of all its processes, memory of the largest one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Took(NamedTuple):
    """One command, run to its end."""

    wall: float
    cpu: float
    """User and system seconds of the process and of every descendant that it waited for."""
    peak: int
    """Resident bytes of the largest of these processes."""
    code: int

    def rounded(self) -> dict[str, float]:
        """Return the figures as results.json holds them: seconds, and MB of memory."""
        return {
            "wall": round(self.wall, 2),
            "cpu": round(self.cpu, 2),
            "peak_mb": round(self.peak / 1e6, 1),
        }


def run(
    command: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    may_fail: bool = False,
) -> Took:
    """Run a command with its output in ``log`` and return what it took.

    Raises:
        SystemExit: it ended with another code than 0, and ``may_fail`` is not set.

    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env and dict(env))
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
    process.returncode = code = os.waitstatus_to_exitcode(status)
    if code and not may_fail:
        raise SystemExit(f"{' '.join(command)} ended with {code}: see {log}")
    return Took(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, code)

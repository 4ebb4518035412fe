"""Writing of the capture of one run, in the format of samebits/records/capture.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samebits_probe.process import files
from samebits_probe.process.hashing import ALGORITHM

if TYPE_CHECKING:
    from pathlib import Path

    from samebits_probe.process.jobs import CellJob

FORMAT_VERSION = 9


def write_capture(
    path: Path, job: CellJob, outcome: dict[str, Any], *, lasting: bool = True
) -> None:
    """Write a capture atomically; if ``lasting``, flush it to the disk."""
    capture = {
        "format": "samebits-capture",
        "format_version": FORMAT_VERSION,
        "hash_algorithm": ALGORITHM,
        "cell": job["cell"],
        "run": job["run"],
        "extent": "short" if job.get("short") else "full",
        "threads": int(job.get("threads", 1)),
        **outcome,
    }
    files.write_sealed(path, capture, lasting=lasting)

"""Writing of the capture of one run, in the format of samebits/records/capture.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from samebits_probe.process import files
from samebits_probe.process.hashing import head
from samebits_wire import formats
from samebits_wire.jobs import CellJob


def write_capture(
    path: Path, job: CellJob, outcome: dict[str, Any], *, lasting: bool = True
) -> None:
    """Write a capture atomically; if ``lasting``, flush it to the disk."""
    capture = {
        **head("capture", formats.CAPTURE),
        "cell": job["cell"],
        "run": job["run"],
        "extent": "short" if job.get("short") else "full",
        "threads": int(job.get("threads", 1)),
        **outcome,
    }
    files.write_sealed(path, capture, lasting=lasting)

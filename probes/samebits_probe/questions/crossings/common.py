"""What both jobs of a crossing begin with, and what both of their files begin with."""

from __future__ import annotations

from typing import Any

from samebits_probe.model import heap
from samebits_probe.model.load import Source
from samebits_probe.process import hashing, threads
from samebits_probe.process.calls import CALLS
from samebits_wire.crossings import CrossingJob

_FORMAT_VERSION = 7
"""As in samebits/questions/crossings/records.py, which has its history."""


def begin(job: CrossingJob) -> Source:
    """Prepare this process for a job, and return the original checkpoint."""
    threads.use(int(job["threads"]))
    variant = job["cell"]["variant"]
    heap.fill_unwritten("a", variant["device"])
    return Source.of(job["model"], variant)


def head(form: str, job: CrossingJob) -> dict[str, Any]:
    """Return the first fields of a file of this format."""
    return hashing.head(form, _FORMAT_VERSION) | {"cell": job["cell"], "entered": CALLS.table()}

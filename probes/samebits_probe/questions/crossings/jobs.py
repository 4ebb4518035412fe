"""The keys of the jobs of a crossing; samebits/questions/crossings/jobs.py says what each means."""

from __future__ import annotations

from typing import Literal

from samebits_wire.jobs import CellModel, JobOfCell


class CrossingJob(JobOfCell):
    """The keys of both jobs."""

    model: CellModel


class SaveJob(CrossingJob):
    """Save a model."""

    kind: Literal["crossings.save"]
    out: str
    limit: int
    makes: bool


class LoadJob(CrossingJob):
    """Load a model and the copies that stacks saved of it."""

    kind: Literal["crossings.load"]
    copies: dict[str, str]
    models: list[str]
    result: str

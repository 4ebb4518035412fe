"""The keys of the jobs of a crossing: one stack saves a model, and another stack loads it."""

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
    """Folder of the copy."""
    limit: int
    """Largest model that is saved, in bytes."""
    makes: bool
    """Leave a small made model of the same kind instead of the model."""


class LoadJob(CrossingJob):
    """Load a model and the copies that stacks saved of it."""

    kind: Literal["crossings.load"]
    copies: dict[str, str]
    """Stack -> folder of its copy."""
    models: list[str]
    """Those of the stacks whose model is loaded; what lies beside the models is loaded of all."""
    result: str

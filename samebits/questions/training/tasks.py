"""What is asked of a training step; probes/samebits_probe/questions/training/tasks.py has the same keys."""

from __future__ import annotations

from typing import Literal

from samebits.jobs.records import Task
from samebits.questions.training.step_trace import Rung


class TrainingTask(Task):
    """The fields of every way to train."""

    values: bool
    """Whether to compute in float64, too, and to store tensors: asked where a pair differs."""
    large: bool
    """Whether its size keeps nothing from being tried: no made model answers for it."""

    @property
    def stores(self) -> bool:
        """True if values of tensors are stored."""
        return self.values


class StepTask(TrainingTask):
    """What to observe of a training step."""

    relations: bool
    """Whether to test relations between ways to train."""


class TraceTask(Task):
    """What to trace of a training step."""

    batch: str
    """Name of the batch."""
    backward: bool
    """Whether to go back from its loss."""
    rung: Rung
    large: bool
    """As in :class:`TrainingTask`."""


class GraftTask(Task):
    """What to store of a reference's loss, or to try in a candidate."""

    role: Literal["donor", "graft"]
    batch: str
    rung: Rung
    large: bool
    """As in :class:`TrainingTask`."""
    skipped: tuple[str, ...]
    """Tensors of the checkpoint whose gradients are not compared."""
    without: tuple[str, ...]
    """Tensors whose gradients count where one side has none."""
    donor: str = ""
    """Path of the donor's result; '' for the donor itself."""

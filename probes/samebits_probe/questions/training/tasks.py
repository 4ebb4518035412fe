"""The jobs of training steps; samebits/questions/training/tasks.py says what their keys mean."""

from __future__ import annotations

from typing import Literal

from samebits_wire.jobs import CellModel, JobOfCell, LimitedStore, Task


class TrainingTask(Task):
    """What is asked of every way to train."""

    values: bool
    large: bool


class StepTask(TrainingTask):
    """What to observe of a training step."""

    relations: bool


class TraceTask(Task):
    """What to trace of a training step."""

    batch: str
    backward: bool
    rung: Literal["own", "float64"]
    large: bool


class GraftTask(Task):
    """What to store of a reference's loss, or to try in a candidate."""

    role: Literal["donor", "graft"]
    batch: str
    rung: Literal["own", "float64"]
    large: bool
    skipped: list[str]
    without: list[str]
    donor: str


class TrainingJob(JobOfCell):
    """The keys of all jobs here, besides their task."""

    store: LimitedStore
    model: CellModel


class StepJob(TrainingJob):
    """Train a cell for one step."""

    task: StepTask


class TraceJob(TrainingJob):
    """Trace one training step of a cell."""

    task: TraceTask


class GraftJob(TrainingJob):
    """Put pieces of a reference's loss into a candidate's training step."""

    task: GraftTask

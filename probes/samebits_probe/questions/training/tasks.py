"""The jobs of training steps; samebits/questions/training/tasks.py says what their keys mean."""

from __future__ import annotations

from typing import Literal

from samebits_wire.jobs import Task, TaskJob


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


class StepJob(TaskJob):
    """Train a cell for one step."""

    task: StepTask


class TraceJob(TaskJob):
    """Trace one training step of a cell."""

    task: TraceTask


class GraftJob(TaskJob):
    """Put pieces of a reference's loss into a candidate's training step."""

    task: GraftTask

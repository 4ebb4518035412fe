"""The keys of Trainer's job, which samebits/questions/trainer/tasks.py writes."""

from __future__ import annotations

from samebits_probe.questions.training.tasks import TrainingTask
from samebits_wire.jobs import TaskJob


class RunTask(TrainingTask):
    """What to observe of Trainer; samebits/questions/trainer/tasks.py says what its keys mean."""

    folder: str


class RunJob(TaskJob):
    """Train a cell by transformers' own Trainer."""

    task: RunTask

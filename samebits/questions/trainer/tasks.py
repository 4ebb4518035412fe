"""What is asked of Trainer; probes/samebits_probe/questions/trainer/run.py reads it."""

from __future__ import annotations

from typing import Any

from samebits.questions.training.tasks import TrainingTask


class RunTask(TrainingTask):
    """What to observe of transformers' own Trainer."""

    folder: str
    """Folder with accelerate, which no stack has and Trainer needs."""

    def facts(self) -> dict[str, Any]:
        """Return what the answer follows from; the stack's digest says which accelerate it is."""
        facts = super().facts()
        del facts["folder"]
        return facts

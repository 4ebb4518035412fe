"""The file of a trainer job.

probes/samebits_probe/training/trainer_job.py writes :class:`TrainerFile` without these classes; this
module is its schema.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.result import CellFile
from samebits.records.trainer import TrainerFacts
from samebits.records.training import TrainingRelations
from samebits_wire import formats


class TrainerFile(CellFile):
    """One cell trained by Trainer."""

    format: Literal["samebits-trainer"] = "samebits-trainer"
    format_version: Literal[3] = formats.TRAINER
    reason: str = ""
    """Why Trainer did not run."""
    accelerate: str = ""
    """Version of accelerate; '' if it could not be used."""
    arguments: dict[str, str] = Field(default_factory=dict)
    """Argument of TrainingArguments -> its value where a user names only a folder."""
    uncertain: tuple[str, ...] = ()
    """Tensors of the checkpoint that hold the bytes of another one and were not matched by name."""
    own: TrainerFacts | None = None
    float64: TrainerFacts | None = None
    no_float64: str = ""
    """Why a run in float64 was asked for and failed."""
    relations: TrainingRelations | None = None
    """Whether accumulated rows teach what they teach as one batch."""
    seconds: float = 0.0

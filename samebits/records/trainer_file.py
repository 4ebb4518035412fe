"""The file of a trainer job.

probes/samebits_probe/training/trainer_job.py writes :class:`TrainerFile` without these classes; this
module is its schema.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.capture import Failure
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.records.trainer import TrainerFacts
from samebits.records.training import TrainingRelations

FORMAT_VERSION: Literal[1] = 1
# History of FORMAT_VERSION:
# 1: first.


class TrainerFile(Record):
    """One cell trained by Trainer."""

    format: Literal["samebits-trainer"] = "samebits-trainer"
    format_version: Literal[1] = FORMAT_VERSION
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    cell: CellId
    failure: Failure | None = None
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

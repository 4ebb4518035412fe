"""What the toy leaves: sums of a cell, and how they compare."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.kinds import CellKind
from samebits.records.question import Answer, Key
from samebits.records.result import CellFile


class ToySignal(Answer):
    """The sum that a phase of a cell made."""

    own: float
    float64: float


class ToyFile(CellFile):
    """The sum that a job of its own made."""

    format: Literal["samebits-toy"] = "samebits-toy"
    own: float = 0.0
    float64: float = 0.0
    note: str = ""


class ToyOfRow(Answer):
    """The sums of a row."""

    phase: dict[str, ToySignal] = Field(default_factory=dict)
    jobs: dict[str, ToyFile] = Field(default_factory=dict)
    standings: dict[str, str] = Field(default_factory=dict)
    """Stack -> how the sum of its job compares with the reference's."""


ADD = CellKind("toy.add", "toys", "toy", record=ToyFile, missing="left no sum", limit=1 << 20)
TOY = Key(
    "toy",
    ToySignal,
    ToyOfRow,
    switch="Whether to add up a few numbers.",
    hint="does each release add up alike",
    kinds=(ADD,),
)

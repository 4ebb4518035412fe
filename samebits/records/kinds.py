"""All kinds of jobs: what they leave, where it is kept, and what it counts for.

``probes/stack.py`` has the module of each kind. ``probes/samebits_wire/jobs.py`` has what is sent. A question
has its own kinds in its folder, named after it: ``training.step`` is done by
``samebits_probe.questions.training.step``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from samebits.records.graft import DonorFile, GraftFile
from samebits.records.ladder import LadderFile
from samebits.records.question import keys
from samebits.records.result import CellFile
from samebits.records.trace import Trace

F = TypeVar("F", bound=CellFile)


@dataclass(frozen=True)
class Kind:
    """One kind of job."""

    name: str
    folder: str
    """Folder of its files in the work folder; '' for none of its own."""
    phase: str = ""
    """The phase of a run in which most of its jobs run; '' if their costs do not count."""
    of_row: bool = False
    """Whether a compared row follows from its files. They lie below model and variant, so that a
    path names its row."""
    lasts: bool = True
    """Whether its files stay though no run uses them: later comparisons may."""


@dataclass(frozen=True, kw_only=True)
class CellKind(Kind, Generic[F]):
    """A kind of job that asks something of one cell."""

    record: type[F]
    missing: str
    """What to note where a cell left nothing."""
    limit: int = 0
    """Bytes up to which the values of a tensor are stored."""
    of_several: bool = False
    """Whether several pairs ask the same of one cell, which then runs once for all of them."""
    lasts: bool = False


CELL = Kind("cell", "captures", "cells", of_row=True)
INPUTS = Kind("inputs", "inputs")
LADDER = CellKind(
    "ladder",
    "ladders",
    "float64 check",
    of_row=True,
    record=LadderFile,
    missing="wrote no result of the float64 check",
    limit=256 << 20,
)
TRACE = CellKind(
    "trace",
    "traces",
    "causes",
    of_row=True,
    record=Trace,
    missing="left no trace",
    limit=16 << 20,
    of_several=True,
)
DONOR = CellKind(
    "graft",
    "grafts",
    "grafts",
    of_row=True,
    record=DonorFile,
    missing="wrote no result of a swap",
    limit=64 << 20,
    of_several=True,
)
PATIENT = CellKind(
    "graft",
    "grafts",
    "grafts",
    of_row=True,
    record=GraftFile,
    missing="wrote no result of a swap",
    limit=64 << 20,
)

_CORE: tuple[Kind, ...] = (
    CELL,
    INPUTS,
    LADDER,
    TRACE,
    DONOR,
    PATIENT,
)


def kinds() -> tuple[Kind, ...]:
    """Return all kinds of jobs: those of verdicts and their causes, and those of questions."""
    return (*_CORE, *(kind for key in keys() for kind in key.kinds))

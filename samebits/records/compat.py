"""compat.json: in which releases each model computes the same, and what changes between them."""

from __future__ import annotations

from typing import Literal

from samebits.records.ids import Level
from samebits.records.record import Record

State = Literal["computes", "raises", "unstable", "absent", "not compared"]
"""What a model does in a release. Unstable: two runs of it give different numbers."""
Step = Literal[
    "",
    "rounding",
    "diverged",
    "undecided",
    "fails",
    "fails otherwise",
    "unstable",
    "works",
    "new",
    "gone",
    "open",
]
"""What a release changes. Undecided: the bits change, and nothing measured whether that is rounding. Works: it raised or
was unstable before. New, gone: only one of both releases has the architecture. Open: one of both was not compared."""


class CompatRelease(Record):
    """An environment of a report."""

    id: str
    transformers: str | None = None
    """The release that it has; None if it could not be built."""
    torch: str | None = None
    python: str | None = None


class CompatRange(Record):
    """Neighbouring releases in which a model does the same: it computes the same bits, or raises the same exception."""

    first: str
    """Id of the oldest release."""
    last: str
    """Id of the newest release."""
    state: State
    bits: str = ""
    """A letter for each set of bits of the model: ranges with one letter have the same ones. '' without bits."""
    step: Step = ""
    """What changes from the range before it; '' for the first one."""
    direct: bool = False
    """Whether both releases of the step were compared with each other; else each was with the oldest release."""
    what: str = ""
    """What differs and how much, or the exception. Figures differ from machine to machine."""
    where: str = ""
    """Where it begins: an operation, a tensor or a line of code."""
    side: str = ""
    """Which side of the step is wrong, where a finding or a consistency check says so."""
    do: str = ""
    """What to do about the step."""
    findings: tuple[str, ...] = ()
    """Codes of the known defects that explain the step."""
    wrong: tuple[str, ...] = ()
    """What says that the releases of this range are wrong: codes of known defects, or ``consistency check``."""


class CompatModel(Record):
    """A model in one variant."""

    model: str
    variant: str
    """Dtype, attention implementation and device, such as ``float32-default``."""
    source: str = ""
    """Where its checkpoint is from, such as ``build llama, seed 0, by 4.48.3``."""
    ranges: tuple[CompatRange, ...]
    """The oldest first."""


class CompatFile(Record):
    """The models of a report."""

    format: Literal["samebits-compat"] = "samebits-compat"
    format_version: Literal[1] = 1
    samebits: str
    """Version of samebits."""
    started: str
    """Start of the run, UTC, RFC 3339."""
    level: Level
    """How much was asked of each model."""
    releases: tuple[CompatRelease, ...]
    """The oldest first."""
    models: tuple[CompatModel, ...]

"""Pieces of one release put into another: what the donor leaves, what was tried, what it shows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.records.capture import Failure
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

FORMAT_VERSION: Literal[3] = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: a set whose run was lost.

SuspectKind = Literal[
    "config",
    "weight",
    "buffer",
    "attribute",
    "positions",
    "rope",
    "mask",
    "scale",
    "implementation",
    "call",
    "cache",
    "head",
    "memory",
]
"""What is put in, in the order in which data flows.

config: a field, and the model is loaded with it. weight, buffer: stored numbers. attribute: a plain
value that a module keeps. positions, rope, mask, scale: what passes each time that it is used.
implementation: of attention or of experts, as loading lets one choose it. call: the same numbers,
repeated, packed and laid out for the attention kernel as the reference does it. cache: its contents
before each step, or its kind. head: how many positions the head computes. memory: how far parameters lie behind a 64-byte boundary.
"""


class DonorOutput(Record):
    """A layer's output, the logits, or the logits of one step, in its real rows."""

    name: str
    rows: str
    """Hash of the real rows."""
    ref: TensorRef


class DonorFile(Record):
    """What the reference leaves for others to be given."""

    format: Literal["samebits-donor"] = "samebits-donor"
    format_version: Literal[3] = FORMAT_VERSION
    cell: CellId
    prompt: str
    what: Literal["forward", "decode"]
    failure: Failure | None = None
    mismatch: str = ""
    """Where it did not compute what the cell's own run did; '' if it did."""
    outputs: tuple[DonorOutput, ...] = ()
    seen: dict[str, tuple[dict[str, Any], ...]] = Field(default_factory=dict)
    """Place in the forward -> what passed there, in order: tensors by reference, and numbers."""
    state: dict[str, Any] = Field(default_factory=dict)
    """Weights, buffers, attributes and places in memory right before the forward."""
    seconds: float = 0.0


class GraftSuspect(Record):
    """Something that differs and can be put in."""

    kind: SuspectKind
    name: str
    what: str
    """One line: what it is, or both values."""


class Untried(Record):
    """Something that is a suspect, too, and could not be put in."""

    what: str
    reason: str


class Try(Record):
    """What came out with one set of suspects put in."""

    suspects: tuple[str, ...]
    """Empty: nothing was put in."""
    same: int
    """Outputs with the reference's bytes."""
    of: int
    """Outputs that were compared."""
    first: str = ""
    """The first of them that still differs."""
    max_abs: float | None = None
    """Largest distance in the logits; None if it is not to be had."""
    idle: tuple[str, ...] = ()
    """Suspects of the set that were put in nowhere: the forward did not pass there."""
    error: str = ""
    """Why the set could not be run to its end."""
    lost: bool = False
    """True if it took too long or died: whether the set restores is not known."""

    @property
    def restores(self) -> bool:
        """True if every output has the reference's bytes."""
        return self.of > 0 and self.same == self.of and not self.error


class GraftFile(Record):
    """What a patient leaves: the sets that were tried."""

    format: Literal["samebits-graft"] = "samebits-graft"
    format_version: Literal[3] = FORMAT_VERSION
    cell: CellId
    prompt: str
    what: Literal["forward", "decode"]
    failure: Failure | None = None
    mismatch: str = ""
    """Why nothing was tried: where it did not compute what the cell's own run did."""
    suspects: tuple[GraftSuspect, ...] = ()
    """Those at the root of a difference first."""
    untried: tuple[Untried, ...] = ()
    tried: tuple[Try, ...] = ()
    """In order; the first is the plain run."""
    spent: bool = False
    """True if runs or time ran out before the search had ended."""
    forks: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0


Proof = Literal["alone", "smallest", "irreducible", "none"]
"""What the runs show of the set that restores equal bits.

alone: one suspect does. smallest: every smaller set was run and does not. irreducible: without any
one of its suspects it does not; not all smaller sets were run. none: no set that was run restores.
"""


class Graft(Record):
    """The smallest set of suspects that gives a cell the reference's bytes, as far as runs show it."""

    prompt: str
    what: Literal["forward", "decode"]
    headline: str
    """One line in plain words."""
    proof: Proof
    smallest: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Further suspects that restore alone: what one hands on, another one may carry, too."""
    suspects: tuple[GraftSuspect, ...] = ()
    untried: tuple[Untried, ...] = ()
    tried: tuple[Try, ...] = ()
    spent: bool = False
    more: tuple[Graft, ...] = ()
    """The same of the cell's other prompts and of decoding, where those differ, too; each begins
    with the set that restored here."""
    unasked: tuple[str, ...] = ()
    """Why other prompts that differ could not be asked."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Of the donor's and the patient's job."""

"""Grafts: parts of the reference release put into another release, to find which restore its bits.

The donor is the reference cell, the patient is the cell that differs.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.records.record import Record
from samebits.records.result import CellFile
from samebits.records.tensor import TensorRef
from samebits_wire import formats
from samebits_wire.grafts import SuspectKind


class DonorOutput(Record):
    """A layer's output, the logits, or the logits of one step, without padding rows."""

    name: str
    rows: str
    """Hash of the rows that are not padding."""
    ref: TensorRef


class DonorFile(CellFile):
    """What the reference cell provides for grafts."""

    format: Literal["samebits-donor"] = "samebits-donor"
    format_version: Literal[5] = formats.GRAFT
    prompt: str
    what: Literal["forward", "decode"]
    mismatch: str = ""
    """Where its results differ from those of the cell's earlier run; '' if they do not."""
    outputs: tuple[DonorOutput, ...] = ()
    seen: dict[str, tuple[dict[str, Any], ...]] = Field(default_factory=dict)
    """Place in the forward -> values that passed there, in order: tensor references and numbers."""
    state: dict[str, Any] = Field(default_factory=dict)
    """Weights, buffers, attributes and memory alignment right before the forward."""
    seconds: float = 0.0


class GraftSuspect(Record):
    """A part that differs and can be put in."""

    kind: SuspectKind
    name: str
    what: str
    """One line: a description, or both values."""


class Untried(Record):
    """A suspect that could not be put in."""

    what: str
    reason: str


class Try(Record):
    """The result of a run with one set of suspects put in."""

    suspects: tuple[str, ...]
    """Empty: nothing was put in."""
    same: int
    """Number of outputs with the reference's bytes."""
    of: int
    """Number of outputs that were compared."""
    first: str = ""
    """The first output that still differs."""
    max_abs: float | None = None
    """Largest absolute difference of the logits; None if it is not available."""
    idle: tuple[str, ...] = ()
    """Suspects of the set that were never put in, because the forward did not reach their place."""
    error: str = ""
    """Why the run with this set did not finish."""
    lost: bool = False
    """True if the run took too long or died: it is unknown whether the set restores the bits."""

    @property
    def restores(self) -> bool:
        """True if every output has the reference's bytes."""
        return self.of > 0 and self.same == self.of and not self.error


class GraftFile(CellFile):
    """The results of one patient: the sets of suspects that were tried."""

    format: Literal["samebits-graft"] = "samebits-graft"
    format_version: Literal[5] = formats.GRAFT
    prompt: str
    what: Literal["forward", "decode"]
    mismatch: str = ""
    """Why nothing was tried: where its results differ from those of the cell's earlier run."""
    suspects: tuple[GraftSuspect, ...] = ()
    """Suspects at the root of a difference come first."""
    untried: tuple[Untried, ...] = ()
    tried: tuple[Try, ...] = ()
    """In order; the first is the run with nothing put in."""
    spent: bool = False
    """True if the limit of runs or time was reached before the search ended."""
    seconds: float = 0.0


Proof = Literal["alone", "smallest", "irreducible", "none"]
"""What the runs prove about the set that restores the reference's bits.

alone: one suspect is enough. smallest: every smaller set was run, and none restores them.
irreducible: without any one of its suspects the set does not restore them, but not all smaller sets
were run. none: no set that was run restores them.
"""


class Graft(Record):
    """The smallest known set of suspects that restores the reference's bytes in a cell."""

    prompt: str
    what: Literal["forward", "decode"]
    headline: str
    """One line in plain words."""
    decides: bool = True
    """False if it restores another difference than the one that decides the verdict."""
    proof: Proof
    smallest: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Other suspects that are enough on their own: one may pass its value on to another."""
    suspects: tuple[GraftSuspect, ...] = ()
    untried: tuple[Untried, ...] = ()
    tried: tuple[Try, ...] = ()
    spent: bool = False
    more: tuple[Graft, ...] = ()
    """Grafts for other prompts of the cell and for decoding, if those differ; each search starts
    with the set found here."""
    unasked: tuple[str, ...] = ()
    """Why there are no grafts for other prompts that differ."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Duration of the donor's and the patient's job."""

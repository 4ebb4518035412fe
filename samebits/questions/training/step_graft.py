"""Grafts in a training step: pieces of the reference's loss put into the candidate's step.

probes/samebits_probe/questions/training/graft.py writes the files.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.questions.training.step_trace import Rung
from samebits.records.graft import Proof, Try, Untried
from samebits.records.record import Record
from samebits.records.result import CellFile
from samebits.records.tensor import TensorRef
from samebits_wire import formats


class StepDonor(CellFile):
    """What the reference provides: the pieces of its loss, and the results of its step."""

    format: Literal["samebits-step-donor"] = "samebits-step-donor"
    format_version: Literal[1] = formats.STEP_GRAFT
    results: dict[str, str] = Field(default_factory=dict)
    """``loss`` and the tensors of the checkpoint -> digest of the loss or of the gradient."""
    calls: tuple[dict[str, Any], ...] = ()
    """Labels and arguments of each call of cross_entropy."""
    items: tuple[float | None, ...] = ()
    """num_items_in_batch of each call of the library's function that divides by it."""
    slope: TensorRef | None = None
    """Gradient of the loss at the logits; None if the loss is no function of them."""
    leaks: tuple[str, ...] = ()


class StepGraftFile(CellFile):
    """The results of a candidate: the sets of pieces that were tried."""

    format: Literal["samebits-step-graft"] = "samebits-step-graft"
    format_version: Literal[1] = formats.STEP_GRAFT
    tried: tuple[Try, ...] = ()
    """In order; the first is the step with nothing put in."""
    untried: tuple[tuple[str, str], ...] = ()
    """Piece and the reason why it could not be put in."""
    leaks: tuple[str, ...] = ()


class StepGraft(Record):
    """Which pieces of the reference's loss make the candidate's step that of the reference."""

    batch: str
    rung: Rung
    """own: byte for byte. float64: rounding is left out."""
    headline: str
    proof: Proof
    smallest: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Other pieces that are enough on their own."""
    tried: tuple[Try, ...] = ()
    untried: tuple[Untried, ...] = ()

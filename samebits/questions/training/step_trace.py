"""Traces of a training step, and the first operation of it that differs.

probes/samebits_probe/questions/training/trace.py writes :class:`StepTrace`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.record import Record
from samebits.records.result import CellFile
from samebits.records.trace import Trace
from samebits_wire import formats

Rung = Literal["own", "float64"]


class StepTrace(CellFile):
    """A forward with labels and its backward, operation by operation."""

    format: Literal["samebits-step-trace"] = "samebits-step-trace"
    format_version: Literal[1] = formats.STEP_TRACE
    trace: Trace | None = None
    """Its marks are logits, losses and gradients in checkpoint space; None if it failed."""
    belongs: dict[int, tuple[str, str]] = Field(default_factory=dict)
    """Operation of the backward -> its autograd node, and the operation of the forward that made the
    node; '' where a parameter's gradient is added up."""
    gradients: dict[str, str] = Field(default_factory=dict)
    """Mark of a gradient -> the tensor of the checkpoint."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters. Both sides load the same checkpoint, so each knows those of the
    other one, in whatever layout."""
    leaks: tuple[str, ...] = ()
    """Operations of a float64 trace with less than float64 precision."""


class StepSide(Record):
    """An operation of a training step on one side."""

    stack: str
    op: str
    """Such as ``mm.default``."""
    arguments: str = ""
    tensor: str = ""
    """Name of the stored tensor that the other side does not have, if the difference is in it."""
    node: str = ""
    """The autograd node of an operation of the backward, such as ``NllLossBackward0``."""
    forward: str = ""
    """The operation of the forward that made this node."""
    module: str = ""
    """Module of the operation; in the backward of the forward operation that it belongs to."""
    function: str = ""
    """Function of transformers or of the model's own code, of the same operation."""
    source: str = ""
    """File and line of the same."""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class StepOrigin(Record):
    """The first operation of a training step whose inputs both sides have and whose output one has."""

    batch: str
    part: Literal["forward", "loss", "backward"]
    """loss: behind the logits, before the backward."""
    sink: str
    """The first loss or gradient that differs by it, in the order of execution."""
    rung: Rung
    """float64: rounding is left out."""
    only_in: Literal["candidate", "reference"]
    """The side that computes it. reference: all that the candidate computes the reference does, too."""
    side: StepSide
    counterpart: StepSide | None = None
    """The operation of the other side that takes the most of the same numbers."""
    evidence: tuple[str, ...] = ()

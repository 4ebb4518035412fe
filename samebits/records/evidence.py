"""What a person would look at next, taken along: cos and sin, query and key, eager logits."""

from __future__ import annotations

from pydantic import Field

from samebits.records.record import Record
from samebits.records.tensor import TensorRef


class RotaryTable(Record):
    """cos or sin as a rotary module returned it; the same table of another layer is left out."""

    module: str
    part: str
    """``cos`` or ``sin``; ``0``, ``1`` … for what returns something else."""
    ref: TensorRef
    position_axis: int
    """The axis of the token positions."""


class AttentionTensors(Record):
    """What entered one attention computation and what left it."""

    module: str
    tensors: dict[str, TensorRef]
    """``query``, ``key``, ``value`` and ``output``, positions on the last axis but one; under
    scaled_dot_product_attention also ``mask``. What was not seen is left out."""


class PromptEvidence(Record):
    """What the forward of one prompt showed."""

    rotary: tuple[RotaryTable, ...] = ()
    attention: tuple[AttentionTensors, ...] = ()
    """In order of execution."""
    eager_logits: TensorRef | None = None
    """Logits of a model loaded again with attention forced to eager."""


class EvidenceSignal(Record):
    """Observations that explain a difference and make no verdict."""

    prompts: dict[str, PromptEvidence] = Field(default_factory=dict)
    skips: dict[str, str] = Field(default_factory=dict)
    """What was not observed -> why: ``rotary``, ``attention``, ``eager``."""

    @property
    def eager_logits(self) -> TensorRef | None:
        """Those of the first prompt."""
        first = next(iter(self.prompts.values()), None)
        return first.eager_logits if first is not None else None

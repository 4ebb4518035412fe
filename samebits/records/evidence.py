"""Further observations that explain differences: cos and sin, query and key, eager logits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from samebits.records.record import RAISED, Record
from samebits.records.tensor import TensorRef


class RotaryTable(Record):
    """cos or sin as a rotary module returned it; equal tables of other layers are omitted."""

    module: str
    part: str
    """``cos`` or ``sin``; ``0``, ``1`` … if the module returns something else."""
    ref: TensorRef


class AttentionTensors(Record):
    """Inputs and output of one attention computation."""

    module: str
    tensors: dict[str, TensorRef]
    """``query``, ``key``, ``value`` and ``output``, with positions on the second-to-last axis; for
    scaled_dot_product_attention also ``mask``. Tensors that were not observed are omitted."""


class PromptEvidence(Record):
    """The evidence from the forward of one prompt."""

    rotary: tuple[RotaryTable, ...] = ()
    attention: tuple[AttentionTensors, ...] = ()
    """In order of execution."""
    eager_logits: TensorRef | None = None
    """Logits of a model loaded again with attention forced to eager."""


class EvidenceSignal(Record):
    """Observations that explain a difference and do not affect the verdict."""

    prompts: dict[str, PromptEvidence] = Field(default_factory=dict)
    skips: dict[str, str] = Field(default_factory=dict)
    """``rotary``, ``attention`` or ``eager`` -> why it was not observed."""
    raised: Annotated[dict[str, str], RAISED] = Field(default_factory=dict)
    """``eager``: the exception of a load with eager attention and its forwards, '' if there was none."""

    @property
    def eager_logits(self) -> TensorRef | None:
        """The eager logits of the first prompt."""
        first = next(iter(self.prompts.values()), None)
        return first.eager_logits if first is not None else None

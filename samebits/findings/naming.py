"""SB309: under which names a model holds what its checkpoint calls otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.case import weights_of
from samebits.findings.rule import Rule, Seen
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture

_SHOWN = 2
"""Renamed tensors that evidence shows."""


def _renamed(case: Case) -> Iterator[Seen]:
    """Speak of tensors whose name in memory is the file's in the reference, and another one here."""
    if case.reference is None:
        return
    there, here = _own_names(case.reference), _own_names(case.capture)
    lost = [tensor for tensor, name in there.items() if name == tensor and tensor in here]
    lost = [tensor for tensor in lost if here[tensor] != tensor]
    if lost:
        shown = (f"{tensor} is in {here[tensor]}" for tensor in lost[:_SHOWN])
        count = f"{len(lost)} of {len(there)} tensors of the file: no attribute of their names here"
        yield Seen("names in memory", (count, *shown))


def _own_names(capture: Capture) -> dict[str, str]:
    """Return tensor of the file -> the name that holds it in memory, its own where it has it."""
    found: dict[str, str] = {}
    weights = weights_of(capture)
    names = set(weights) | {alias for facts in weights.values() for alias in facts.aliases}
    for name, facts in weights.items():
        for piece in facts.pieces if facts.origin == "loaded" else ():
            held = piece.tensor if piece.tensor in names else name
            found.setdefault(piece.tensor, held)
    return found


RULES = (
    Rule(
        RuleText(
            code="SB309",
            name="tensors of the checkpoint have other names in memory",
            kind="api",
            looks_for="tensors that the model holds under the checkpoint's names in the reference, and "
            "under others, or as part of a larger tensor, here. The numbers are compared in "
            "checkpoint space and may well be the same",
            cause="Releases rename and fuse modules and turn names back when they load and save: "
            "experts.N.w1 and w3 are experts.gate_up_proj from 5.0 on, gpt_neox's embed_out is lm_head "
            "by 5.15.",
            remedy="Nothing for loading and saving. Code that reaches for such a tensor (a LoRA target, "
            "a quantiser's list, model.embed_out) needs the name of the release: get_output_embeddings() "
            "for heads; for experts look for the fused name first.",
            example="head = model.get_output_embeddings()",
            releases="mixtures of experts: 5.0.0 and later; gpt_neox: 5.15 and later",
            references=(
                "transformers/core_model_loading.py, WeightConverter",
                "transformers/conversion_mapping.py",
            ),
        ),
        _renamed,
    ),
)

"""SB2xx: rules for config fields that a release does not have."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from samebits.defaults.moved import is_same, turn
from samebits.defaults.table import table
from samebits.findings.rule import RAISED, Rule, Sighting, raised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case

_BASE_ATTRIBUTES = (
    "pad_token_id|eos_token_id|bos_token_id|sep_token_id|decoder_start_token_id"
    "|tie_word_embeddings|is_decoder|add_cross_attention|cross_attention_hidden_size"
    "|pruned_heads|torchscript|tie_encoder_decoder|prefix|task_specific_params|tf_legacy_loss"
    "|use_bfloat16|finetuning_task|tokenizer_class|use_cache|output_attentions|temperature|top_k"
    "|top_p|max_length|num_beams|do_sample"
)


def _moved_default(case: Case) -> Iterator[Sighting]:
    """Find fields with the default of each release: had config.json the field, both had its value."""
    reference = case.reference.signals.config if case.reference is not None else None
    candidate = case.capture.signals.config
    if reference is None or candidate is None:
        return
    for where, lines in _moved("", reference, candidate):
        yield Sighting(where, lines)


def _moved(
    path: str, reference: dict[str, Any], candidate: dict[str, Any]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    model_type = candidate.get("model_type")
    for field in sorted(reference.keys() & candidate.keys()):
        before, after = reference[field], candidate[field]
        if isinstance(before, dict) and isinstance(after, dict) and "model_type" in after:
            yield from _moved(f"{path}{field}.", before, after)
        elif isinstance(model_type, str) and not is_same(before, after):
            step = _turn(model_type, field, json.dumps(before), json.dumps(after))
            if step is not None:
                values = f"{path}{field}: {json.dumps(before)} → {json.dumps(after)}"
                yield (
                    f"{path}{field}",
                    (values, f"the default moved between {step[0]} and {step[1]}"),
                )


@cache
def _turn(model_type: str, field: str, before: str, after: str) -> tuple[str, str] | None:
    """Return the step of a default between two values, which are texts of JSON."""
    return turn(table(), model_type, field, json.loads(before), json.loads(after))


RULES = (
    Rule(
        "SB201",
        raised("AttributeError", rf"'\w*Config' object has no attribute '({_BASE_ATTRIBUTES})'"),
        explains=RAISED,
    ),
    Rule(
        "SB202",
        raised("AttributeError", r"'\w*Config' object has no attribute 'rope_(theta|scaling)'"),
        explains=RAISED,
    ),
    Rule(
        "SB205",
        raised(
            "StrictDataclassFieldValidationError|StrictDataclassClassValidationError"
            "|StrictDataclassDefinitionError",
            # what a validator of a class raises otherwise is a defect of the validator
            r"\A(?!Class validation error for validator '\w+':\s+(Attribute|Index|Name|Type)Error)",
        ),
        explains=RAISED,
    ),
    Rule("SB209", _moved_default),
)

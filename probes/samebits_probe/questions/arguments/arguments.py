"""Arguments of forward: what each of them changes, if forward takes it.

The result has the form of ArgumentsSignal in samebits/questions/arguments/records.py. A release that no longer
reads an argument may raise, or swallow it with ``**kwargs``: the effect tells both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from samebits_probe.model import forks, outputs
from samebits_probe.model.distance import distance, same_bytes
from samebits_probe.model.inputs import text_config
from samebits_probe.model.series_shapes import number
from samebits_probe.process.failure import in_one_line, library_line

Facts = dict[str, Any]
_CLEAR = 2.0**-8
"""Part of the largest output by which an effect is no rounding, in any dtype and on any CPU."""
_MAX_REASON = 160


def given(model: Any, kwargs: Facts) -> Facts:
    """Return argument -> a value that changes what is computed, for each that applies to the model's inputs."""
    return {name: value for name, value in _values(model, kwargs) if name not in kwargs}


def _values(model: Any, kwargs: Facts) -> Iterator[tuple[str, Any]]:
    config = text_config(model.config)
    yield from _head_masks(config)
    tokens: Any = kwargs.get("input_ids")
    if isinstance(tokens, torch.Tensor) and tokens.dim() == 2 and tokens.shape[0] == 1:
        length = tokens.shape[1]
        mask = torch.ones_like(tokens)
        mask[:, 0] = 0
        yield "attention_mask", mask
        # the distances change, too: a rotary embedding does not see where a row begins
        yield "position_ids", torch.arange(length).flip(0)[None]
        if (getattr(config, "type_vocab_size", 0) or 0) > 1:
            yield "token_type_ids", torch.ones_like(tokens)
    yield "return_dict", False
    yield "output_hidden_states", True
    yield "output_router_logits", True


def _head_masks(config: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield masks that hide the first head of each layer."""
    sizes = (
        ("head_mask", "num_hidden_layers", "num_attention_heads"),
        ("decoder_head_mask", "decoder_layers", "decoder_attention_heads"),
        ("cross_attn_head_mask", "decoder_layers", "decoder_attention_heads"),
    )
    for name, *fields in sizes:
        layers, heads = (number(config, field) for field in fields)
        if layers and heads > 1:  # LXMERT has a number of layers for each kind
            mask = torch.ones(layers, heads)
            mask[:, 0] = 0
            yield name, mask


def effects(
    model: Any, kwargs: Facts, values: Facts, restore: Callable[[], None]
) -> dict[str, Facts]:
    """Return argument -> whether forward names it, and its effect; ``restore`` undoes what a forward leaves.

    Raises:
        Exception: what the forward raises without any of the arguments.

    """
    plain = answer(model, kwargs, restore)
    facts: dict[str, Facts] = {}
    for name, value in values.items():
        named = {"named": forks.accepts(model, name)}
        try:
            other = answer(model, {**kwargs, name: value}, restore)
        except Exception as error:  # noqa: BLE001  that it raises is the observation
            facts[name] = named | raised(error)
        else:
            facts[name] = named | _effect(plain, other)
    return facts


def answer(model: Any, kwargs: Facts, restore: Callable[[], None]) -> Any:
    """Return what forward gives; ``restore`` undoes what it leaves."""
    try:
        with torch.no_grad():
            return model(**kwargs)
    finally:
        restore()


def raised(error: Exception) -> Facts:
    """Return the effect of an argument with which a call raises."""
    reason = in_one_line(error, _MAX_REASON)
    return {"effect": "raises", "message": reason, "at": library_line(error)}


def _effect(plain: Any, other: Any) -> Facts:
    """Return the effect: another form, other fields, other numbers, or none."""
    if isinstance(plain, tuple) is not isinstance(other, tuple):
        return {"effect": "another form", "message": type(other).__name__}
    if added := added_fields(plain, other):
        return added
    return effect_of(outputs.logits_of(plain), outputs.logits_of(other))


def added_fields(plain: Any, other: Any) -> Facts:
    """Return the effect of an argument that adds fields; empty if it adds none."""
    added = sorted(_fields(other) - _fields(plain))
    return {"effect": "more fields", "message": ", ".join(added)} if added else {}


def effect_of(before: torch.Tensor | None, after: torch.Tensor | None) -> Facts:
    """Return the effect on numbers."""
    if before is None or after is None:
        return {"effect": "none"}
    if before.shape != after.shape:
        shapes = (str(tuple(tensor.shape)) for tensor in (before, after))
        return {"effect": "another shape", "message": " → ".join(shapes)}
    if same_bytes(before, after):
        return {"effect": "none"}
    largest = float(before[before.isfinite()].double().abs().max()) or 1.0
    part = distance(before, after)["max_abs"] / largest
    return {"effect": "other numbers" if part > _CLEAR else "rounding"}


def _fields(output: Any) -> set[str]:
    return (
        {str(k) for k, v in output.items() if v is not None} if hasattr(output, "items") else set()
    )

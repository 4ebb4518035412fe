"""Arguments of forward: what each of them changes, if forward takes it.

The result has the form of ArgumentsSignal in samebits/questions/arguments/records.py. A release that no longer
reads an argument may raise, or swallow it with ``**kwargs``: the effect tells both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model import choice, forks, load, outputs
from samebits_probe.model.choice import DECODER, MASK, PIXELS
from samebits_probe.model.distance import distance, same_bytes
from samebits_probe.model.inputs import text_config
from samebits_probe.model.series_shapes import number
from samebits_probe.model.tensor import samples
from samebits_probe.process.failure import in_one_line, library_line

Facts = dict[str, Any]
_CLEAR = 2.0**-8
"""Part of the largest output by which an effect is no rounding, in any dtype and on any CPU."""
_NO_MORE_THAN_ORDER = 2.0**-14
"""Part of the largest output up to which, in float32, an argument can only have changed the order of sums."""
_MAX_REASON = 160
GLOBAL = "global_attention_mask"
"""Argument that names the tokens that attend to all others; only a model with windows of attention has such tokens."""
ROUTERS = "output_router_logits"
LAYER = "vision_feature_layer"
"""Argument, and field of a config, that says which layer of its tower a model reads."""
OTHER = "other numbers"
_SAMPLES = 32
"""Values of the logits that are kept."""


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
        if (getattr(config, "type_vocab_size", 2) or 0) > 1:  # GPT-2's types are tokens
            yield "token_type_ids", torch.ones_like(tokens)
        if forks.accepts(model, GLOBAL) and hasattr(config, "attention_window"):
            yield GLOBAL, 1 - mask
    yield from _masks_of_parts(model, kwargs)
    yield "return_dict", False
    yield "output_hidden_states", True
    yield ROUTERS, True
    if isinstance(tokens, torch.Tensor):
        yield "logits_to_keep", 1
        yield "num_logits_to_keep", 1
    if not load.continues_text(model):  # of those usage asks it
        yield "output_attentions", True


def beside_media(model: Any) -> Facts:
    """Return argument -> a value that changes what is computed of a prompt with an image and text."""
    values: Facts = {"logits_to_keep": 1, "output_hidden_states": True}
    if isinstance(layer := getattr(model.config, LAYER, None), int):
        values[LAYER] = -1 if layer != -1 else -2
    return values


def _masks_of_parts(model: Any, kwargs: Facts) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield masks that hide the first token of a decoder, the end of a sound, and the right half of an image."""
    if (tokens := kwargs.get(DECODER)) is not None and tokens.dim() == 2 and tokens.shape[1] > 1:
        mask = torch.ones_like(tokens)
        mask[:, 0] = 0
        yield "decoder_attention_mask", mask
        yield "decoder_position_ids", torch.arange(tokens.shape[1]).flip(0)[None]
    sound, names = kwargs.get("input_values"), choice.signature_of(model.forward).names
    if sound is not None and sound.dim() == 2 and MASK in names:
        mask = torch.ones(sound.shape, dtype=torch.long)
        mask[:, -(sound.shape[1] // 4) :] = 0
        yield MASK, mask
    pixels = kwargs.get(PIXELS)
    if pixels is not None and pixels.dim() == 4 and "pixel_mask" in names:
        mask = torch.ones((len(pixels), *pixels.shape[-2:]), dtype=torch.long)
        mask[..., pixels.shape[-1] // 2 :] = 0
        yield "pixel_mask", mask


def _head_masks(config: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield masks that hide the first head of each layer."""
    of_decoder = (
        ("decoder_layers", "num_decoder_layers"),
        ("decoder_attention_heads", "num_decoder_attention_heads", "num_attention_heads"),
    )
    sizes: dict[str, tuple[tuple[str, ...], ...]] = {
        "head_mask": (("num_hidden_layers",), ("num_attention_heads",)),
        "decoder_head_mask": of_decoder,
        "cross_attn_head_mask": of_decoder,
    }
    for name, fields in sizes.items():
        layers, heads = (next(filter(None, map(partial(number, config), of)), 0) for of in fields)
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
            changed = answer(model, {**kwargs, name: value}, restore)
        except Exception as error:  # noqa: BLE001  that it raises is the observation
            facts[name] = named | raised(error)
        else:
            facts[name] = named | _effect(plain, changed, _hides(name, value))
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


def _hides(name: str, value: Any) -> torch.Tensor | None:
    """Return the mask of a row that hides tokens or the end of a sound; None for another argument."""
    is_mask = name.endswith(MASK) and name != GLOBAL and value.dim() == 2 and len(value) == 1
    return value[0] if is_mask else None


def _seen(logits: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the logits of what a mask does not hide: a token that sees nothing has no meaning, nor has a hidden one."""
    if mask is None or logits.ndim != 3:
        return logits
    if len(mask) == logits.shape[1]:
        return logits[:, mask == 1]
    frames = logits.shape[1] * int(mask.sum()) // len(mask)
    return logits[:, : max(frames - 1, 1)]


def _effect(plain: Any, changed: Any, mask: torch.Tensor | None = None) -> Facts:
    """Return the effect: another form, other fields, other numbers, or none."""
    if isinstance(plain, tuple) is not isinstance(changed, tuple):
        return {"effect": "another form", "message": type(changed).__name__}
    if added := added_fields(plain, changed):
        return added
    before, after = outputs.logits_of(plain), outputs.logits_of(changed)
    facts = effect_of(before, after)
    if before is None or after is None or facts["effect"] != OTHER:
        return facts
    return facts | numbers_of(_seen(before, mask), _seen(after, mask))


def added_fields(plain: Any, changed: Any) -> Facts:
    """Return the effect of an argument that adds fields; empty if it adds none."""
    added = sorted(_fields(changed) - _fields(plain))
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
    if part > _CLEAR:
        return {"effect": OTHER}
    is_order = before.dtype == torch.float32 and part <= _NO_MORE_THAN_ORDER
    return {"effect": "order of sums" if is_order else "rounding"}


def numbers_of(before: torch.Tensor, after: torch.Tensor) -> Facts:
    """Return values without and with an argument; none in another dtype than float32, or if some are not finite."""
    if before.dtype != torch.float32 or not (before.isfinite() & after.isfinite()).all():
        return {}
    return {"without": samples(before, _SAMPLES), "numbers": samples(after, _SAMPLES)}


def _fields(output: Any) -> set[str]:
    """Return the fields that hold anything, and those of the outputs of parts, as CLIP returns them."""
    items = output.items() if hasattr(output, "items") else ()
    fields = {str(name): value for name, value in items if _holds(value)}
    of_parts = {f"{name}.{inner}" for name, part in fields.items() for inner in _fields(part)}
    return {*fields, *of_parts}


def _holds(value: Any) -> bool:
    """Tell whether a field holds anything: some releases return a tuple of nothing."""
    return any(map(_holds, value)) if isinstance(value, tuple) else value is not None

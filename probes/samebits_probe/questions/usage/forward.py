"""Questions about forward: attention maps, packed sequences, the cache, cache_position."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from samebits_probe.model import forks
from samebits_probe.model.distance import distance, same_bytes
from samebits_probe.model.inputs import past_window, text_config
from samebits_probe.questions.usage.subject import HALF, NoMeaning, Subject, error_text

Facts = dict[str, Any]
_MAX_WINDOW = 512
"""Tokens: a forward past a longer window would be a stress test."""
_POSITION_ERROR = 3
"""Number of positions by which the wrong cache_position is off."""


def attentions(subject: Subject) -> Facts:
    """Return the result of output_attentions=True, with the model as it is and with eager."""
    model, ids = subject.model, subject.ids()
    facts: Facts = {"implementation": getattr(model.config, "_attn_implementation", None) or ""}
    facts["given"], logits = _attentions_of(model, ids)
    if logits is not None and facts["given"] == "tensors":
        facts["logits_changed"] = not same_bytes(subject.logits(), logits)
    facts["set_in_config"] = _set_in_config(model)
    if facts["given"] != "tensors" and facts["implementation"] not in ("", "eager"):
        with forks.attention(model, "eager"):
            facts["eager"], _ = _attentions_of(model, ids)
    return facts


def _attentions_of(model: Any, ids: torch.Tensor) -> tuple[str, torch.Tensor | None]:
    try:
        output = model(ids, output_attentions=True)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return error_text(error), None
    return _kind(getattr(output, "attentions", None)), output.logits


def _kind(attentions: Any) -> str:
    if attentions is None:
        return "None"
    tensors = [isinstance(layer, torch.Tensor) for layer in attentions]
    if not tensors:
        return "an empty tuple"
    if all(tensors):
        return "tensors"
    return "tensors and None" if any(tensors) else "None for each layer"


def _set_in_config(model: Any) -> str:
    """Return the exception of ``config.output_attentions = True``; '' if there is none."""
    try:
        model.config.output_attentions = True
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return error_text(error)
    model.config.output_attentions = False
    return ""


class Way(NamedTuple):
    """One way to feed two sequences packed into one row."""

    name: str
    mask: bool
    use_cache: bool


WAYS = (
    Way("no mask, no cache", mask=False, use_cache=False),
    Way("a mask of ones, no cache", mask=True, use_cache=False),
    Way("no mask, use_cache=True", mask=False, use_cache=True),
)


def packed(subject: Subject) -> Facts:
    """Return whether the second of two packed sequences sees the first, in every way to feed them.

    A different first sequence is fed too: a change in the rows of the second shows that it sees the
    first. The same ids under ordinary positions show how large that change can be.
    """
    if not subject.accepts("position_ids"):
        raise NoMeaning("forward takes no position_ids")
    first_ids, other_ids, second_ids = (subject.ids(f"packed {name}", HALF) for name in "abc")
    pairs = tuple(torch.cat([head, second_ids], dim=1) for head in (first_ids, other_ids))
    ordinary = [subject.model(ids).logits[:, HALF:] for ids in pairs]
    second_logits = subject.model(second_ids).logits
    return {
        "ordinary": distance(*ordinary)["max_abs"],
        "ways": [_packed_in(subject.model, way, pairs, second_logits) for way in WAYS],
    }


def _packed_in(
    model: Any, way: Way, pairs: tuple[torch.Tensor, ...], second_logits: torch.Tensor
) -> Facts:
    arguments: Facts = {"position_ids": torch.arange(HALF).repeat(2)[None]}
    if way.mask:
        arguments["attention_mask"] = torch.ones_like(pairs[0])
    if forks.accepts(model, "use_cache") or forks.accepts(model, "kwargs"):
        arguments["use_cache"] = way.use_cache
    try:
        first, second = (model(ids, **arguments).logits[:, HALF:] for ids in pairs)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"way": way.name, "refused": error_text(error)}
    return {
        "way": way.name,
        "by_the_first": distance(first, second)["max_abs"],
        "from_alone": distance(first, second_logits)["max_abs"],
    }


def cache(subject: Subject) -> Facts:
    """Return the contents of a cache's layers after a forward past the sliding window."""
    model = subject.model
    if not forks.takes_kv_cache(model):
        raise NoMeaning("forward takes no cache of keys and values")
    length = past_window(text_config(model.config))
    if length > _MAX_WINDOW:
        raise NoMeaning(f"at most {_MAX_WINDOW} tokens are fed, and its window needs {length}")
    new_cache = forks.new_cache(model, 1, length, model.dtype)
    keyword = forks.cache_keyword(model) or ""
    arguments = {keyword: new_cache} if new_cache is not None else {}
    output = model(subject.ids("cache", length), use_cache=True, **arguments)
    if (cache_after := getattr(output, keyword, None)) is None:
        raise NoMeaning("forward returns no cache")
    keys = {
        int(name.split()[1]): tensor
        for name, tensor in forks.cache_tensors(cache_after)
        if name.startswith("layer ") and name.split()[2:] == ["keys"]
    }
    return {
        "fed": length,
        "kind": type(cache_after).__name__,
        "seq_length": forks.cache_length(cache_after),
        "layers": _counted_kinds(
            {"kind": forks.cache_layer_kind(cache_after, index), "keys": int(tensor.shape[-2])}
            for index, tensor in keys.items()
        ),
    }


def _counted_kinds(layers: Any) -> list[Facts]:
    """Return each kind of layer once, with the number of such layers."""
    kinds: list[Facts] = []
    for layer in layers:
        if (same := next((kind for kind in kinds if layer.items() <= kind.items()), None)) is None:
            kinds.append(layer | {"n": 1})
        else:
            same["n"] += 1
    return kinds


def cache_position(subject: Subject) -> Facts:
    """Return whether forward takes cache_position, and what a wrong one changes."""
    if not forks.takes_kv_cache(subject.model):
        raise NoMeaning("forward takes no cache of keys and values")
    ids = subject.ids()
    wrong = torch.arange(ids.shape[1]) + _POSITION_ERROR
    facts: Facts = {"named": subject.accepts("cache_position")}
    try:
        logits = subject.model(ids, cache_position=wrong).logits
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return facts | {"wrong": error_text(error)}
    same = same_bytes(subject.logits(), logits)
    return facts | {"wrong": "the same logits" if same else "other logits"}

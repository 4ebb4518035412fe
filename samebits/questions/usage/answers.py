"""Answers of records.py in a few words each, short enough for a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from samebits.questions.usage.compare import NEUTRAL, OF_SAMPLING
from samebits.questions.usage.records import CACHES, SecondCall, UsageSignal, with_cache

_SHOWN_TOKENS = 6
_SHOWN_DEFAULTS = (
    "do_sample",
    "num_beams",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "max_length",
    "max_new_tokens",
    "forced_eos_token_id",
    "eos_token_id",
)


class Usage(NamedTuple):
    """One thing that a user does, and how to put its result into words."""

    what: str
    answer: Callable[[UsageSignal, str], str]
    """Takes a signal and the dtype of its variant; returns '' without an answer."""


def _maps(usage: UsageSignal, _dtype: str) -> str:
    attentions = usage.attentions
    if attentions is None:
        return ""
    return (
        f"{_refusal(attentions.given)}{', different logits' if attentions.logits_changed else ''}"
    )


def _packed(usage: UsageSignal, dtype: str) -> str:
    packed = usage.packed
    if packed is None:
        return ""
    results = [packed.sees(way, dtype) for way in packed.ways]
    if None in results:
        refused = [way.refused for way in packed.ways if way.refused]
        return _refusal(refused[0]) if refused else ""
    if all(results):
        return "one sequence"
    if not any(results):
        return "two sequences"
    return "two sequences; one with " + " or ".join(
        word for word, sees in zip(("neither", "mask", "cache"), results, strict=True) if sees
    )


def _keys(usage: UsageSignal, _dtype: str) -> str:
    cache = usage.cache
    if cache is None or not cache.layers:
        return ""
    return "fewer than fed" if any(layer.keys < cache.fed for layer in cache.layers) else "all"


def _cache_position(usage: UsageSignal, _dtype: str) -> str:
    cache_position = usage.cache_position
    if cache_position is None:
        return ""
    if cache_position.wrong == "the same logits":
        return "no effect" if cache_position.named else "ignored"
    return "used" if cache_position.wrong == "other logits" else _refusal(cache_position.wrong)


def _second(second: SecondCall | None, dtype: str) -> str:
    if second is None or second.refused:
        return "" if second is None else _refusal(second.refused)
    agrees = second.agrees(dtype)
    return "" if agrees is None else "the same scores" if agrees else "other scores"


def _called(name: str) -> Callable[[UsageSignal, str], str]:
    """Return the answer of a call with a kind of cache."""
    call = with_cache(name)
    return lambda usage, dtype: _second(call(usage), dtype)


def _position_ids(usage: UsageSignal, _dtype: str) -> str:
    position_ids = usage.position_ids
    if position_ids is None:
        return ""
    if position_ids.refused:
        return _refusal(position_ids.refused)
    if len(position_ids.fed) > 1 and len(set(position_ids.fed)) == 1:
        return "frozen" if not position_ids.same_logits else "frozen, no effect"
    return "advance" if position_ids.same_logits else "different logits"


def _assisted(usage: UsageSignal, _dtype: str) -> str:
    assisted = usage.assisted
    if assisted is None:
        return ""
    return "no assistant" if assisted.plain else _outcome(assisted.min_new_tokens)


def _strategy(name: str) -> Callable[[UsageSignal, str], str]:
    def answer(usage: UsageSignal, _dtype: str) -> str:
        strategies = usage.strategies
        return "" if strategies is None or name not in strategies else _outcome(strategies[name])

    return answer


def _defaults(usage: UsageSignal, _dtype: str) -> str:
    generation = usage.generation
    if generation is None:
        return ""
    return ", ".join(
        f"{name}={generation.config[name]}"
        for name in _SHOWN_DEFAULTS
        if generation.config.get(name, NEUTRAL.get(name, OF_SAMPLING.get(name)))
        != NEUTRAL.get(name, OF_SAMPLING.get(name))
    )


def _way(name: str) -> Callable[[UsageSignal, str], str]:
    """Return the tokens of a way, or its exception; draws depend on the machine."""

    def answer(usage: UsageSignal, _dtype: str) -> str:
        way = usage.generation.ways.get(name) if usage.generation is not None else None
        if way is None or way.drew:
            return ""
        if way.refused:
            return _refusal(way.refused)
        return " ".join(map(str, way.tokens[0][-_SHOWN_TOKENS:])) if way.tokens else ""

    return answer


def _files(usage: UsageSignal, _dtype: str) -> str:
    if usage.saved is None or usage.saved.refused:
        return "" if usage.saved is None else _refusal(usage.saved.refused)
    ends = (name.rpartition(".")[2] for name in usage.saved.files if not name.endswith(".json"))
    return ", ".join(dict.fromkeys(end for end in ends if end in {"bin", "safetensors"}))


def _dtype_key(usage: UsageSignal, _dtype: str) -> str:
    return ", ".join(usage.saved.dtype_keys) if usage.saved is not None else ""


def _shards(usage: UsageSignal, _dtype: str) -> str:
    return usage.saved.max_shard_size if usage.saved is not None else ""


def _reentrant(usage: UsageSignal, _dtype: str) -> str:
    checkpointing = usage.checkpointing
    if checkpointing is None:
        return ""
    return (
        _refusal(checkpointing.refused)
        if checkpointing.refused
        else str(checkpointing.use_reentrant)
    )


def _outcome(error: str) -> str:
    """Return the words for an exception in a table; *works* without one."""
    if "trust_remote_code=True" in error:
        return "needs hub code"
    return _refusal(error) if error else "works"


def _refusal(text: str) -> str:
    """Return the type of an exception; any other text is returned as it is."""
    kind, colon, _ = text.partition(": ")
    return kind.rpartition(".")[2] if colon else text


USAGES = (
    Usage("output_attentions=True", _maps),
    Usage("packed position_ids", _packed),
    Usage("keys that the cache keeps", _keys),
    Usage("forward(cache_position)", _cache_position),
    Usage("second generate()", lambda usage, dtype: _second(usage.repeated, dtype)),
    *(Usage(f"generate() with a {name} cache", _called(name)) for name in ("static", *CACHES)),
    Usage("static cache, flex attention", lambda usage, dtype: _second(usage.flex, dtype)),
    Usage("generate(position_ids)", _position_ids),
    Usage("assistant, min_new_tokens", _assisted),
    Usage("penalty_alpha", _strategy("penalty_alpha")),
    Usage("num_beam_groups", _strategy("num_beam_groups")),
    Usage("defaults of generate()", _defaults),
    Usage("generate(num_beams=3), same logits", _way("beams")),
    Usage("beams with several end tokens", _way("beams that end")),
    Usage("safe_serialization=False", _files),
    Usage("dtype in config.json", _dtype_key),
    Usage("default max_shard_size", _shards),
    Usage("default use_reentrant", _reentrant),
)

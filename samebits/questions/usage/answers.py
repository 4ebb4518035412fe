"""Answers of records.py in a few words each, short enough for a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from samebits.questions.usage.compare import NEUTRAL, OF_SAMPLING
from samebits.questions.usage.generation import GenerationSignal
from samebits.questions.usage.records import (
    CACHES,
    Assisted,
    Attentions,
    CacheHeld,
    CachePosition,
    Checkpointing,
    Packed,
    PositionIds,
    SavedFiles,
    SecondCall,
    UsageSignal,
    with_cache,
)

T = TypeVar("T")
Answer = Callable[[UsageSignal, str], str]
"""Takes a signal and the dtype of its variant; returns '' without an answer."""
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
    answer: Answer


def _of(part: Callable[[UsageSignal], T | None], words: Callable[[T, str], str]) -> Answer:
    """Return the answer about a part of the signal, in words of the part and the dtype; '' where it was not tried."""

    def answer(usage: UsageSignal, dtype: str) -> str:
        asked = part(usage)
        return "" if asked is None else words(asked, dtype)

    return answer


def _maps(attentions: Attentions, _dtype: str) -> str:
    change = ", different logits" if attentions.logits_changed else ""
    return f"{_refusal(attentions.given)}{change}"


def _packed(packed: Packed, dtype: str) -> str:
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


def _keys(cache: CacheHeld, _dtype: str) -> str:
    if not cache.layers:
        return ""
    return "fewer than fed" if any(layer.keys < cache.fed for layer in cache.layers) else "all"


def _cache_position(cache_position: CachePosition, _dtype: str) -> str:
    if cache_position.wrong == "the same logits":
        return "no effect" if cache_position.named else "ignored"
    return "used" if cache_position.wrong == "other logits" else _refusal(cache_position.wrong)


def _second(second: SecondCall, dtype: str) -> str:
    if second.refused:
        return _refusal(second.refused)
    agrees = second.agrees(dtype)
    return "" if agrees is None else "the same scores" if agrees else "other scores"


def _position_ids(position_ids: PositionIds, _dtype: str) -> str:
    if position_ids.refused:
        return _refusal(position_ids.refused)
    if len(position_ids.fed) > 1 and len(set(position_ids.fed)) == 1:
        return "frozen" if not position_ids.same_logits else "frozen, no effect"
    return "advance" if position_ids.same_logits else "different logits"


def _assisted(assisted: Assisted, _dtype: str) -> str:
    return "no assistant" if assisted.plain else _outcome(assisted.min_new_tokens)


def _strategy(name: str) -> Answer:
    return _of(
        lambda usage: (usage.strategies or {}).get(name), lambda error, _dtype: _outcome(error)
    )


def _defaults(generation: GenerationSignal, _dtype: str) -> str:
    return ", ".join(
        f"{name}={generation.config[name]}"
        for name in _SHOWN_DEFAULTS
        if generation.config.get(name, NEUTRAL.get(name, OF_SAMPLING.get(name)))
        != NEUTRAL.get(name, OF_SAMPLING.get(name))
    )


def _way(name: str) -> Answer:
    """Return the tokens of a way, or its exception; draws depend on the machine."""

    def words(generation: GenerationSignal, _dtype: str) -> str:
        way = generation.ways.get(name)
        if way is None or way.drew:
            return ""
        if way.refused:
            return _refusal(way.refused)
        return " ".join(map(str, way.tokens[0][-_SHOWN_TOKENS:])) if way.tokens else ""

    return _of(_generation, words)


def _generation(usage: UsageSignal) -> GenerationSignal | None:
    return usage.generation


def _saved(words: Callable[[SavedFiles, str], str]) -> Answer:
    return _of(lambda usage: usage.saved, words)


def _files(saved: SavedFiles, _dtype: str) -> str:
    if saved.refused:
        return _refusal(saved.refused)
    ends = (name.rpartition(".")[2] for name in saved.files if not name.endswith(".json"))
    return ", ".join(dict.fromkeys(end for end in ends if end in {"bin", "safetensors"}))


def _reentrant(checkpointing: Checkpointing, _dtype: str) -> str:
    if checkpointing.refused:
        return _refusal(checkpointing.refused)
    return str(checkpointing.use_reentrant)


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
    Usage("output_attentions=True", _of(lambda usage: usage.attentions, _maps)),
    Usage("packed position_ids", _of(lambda usage: usage.packed, _packed)),
    Usage("keys that the cache keeps", _of(lambda usage: usage.cache, _keys)),
    Usage("forward(cache_position)", _of(lambda usage: usage.cache_position, _cache_position)),
    Usage("second generate()", _of(lambda usage: usage.repeated, _second)),
    *(
        Usage(f"generate() with a {name} cache", _of(with_cache(name), _second))
        for name in ("static", *CACHES)
    ),
    Usage("static cache, flex attention", _of(lambda usage: usage.flex, _second)),
    Usage("generate(position_ids)", _of(lambda usage: usage.position_ids, _position_ids)),
    Usage("assistant, min_new_tokens", _of(lambda usage: usage.assisted, _assisted)),
    *(
        Usage(name, _strategy(name))
        for name in ("penalty_alpha", "num_beam_groups", "dola_layers", "force_words_ids")
    ),
    Usage("defaults of generate()", _of(_generation, _defaults)),
    Usage("generate(num_beams=3), same logits", _way("beams")),
    Usage("beams with several end tokens", _way("beams that end")),
    Usage("safe_serialization=False", _saved(_files)),
    Usage("dtype in config.json", _saved(lambda saved, _dtype: ", ".join(saved.dtype_keys))),
    Usage("default max_shard_size", _saved(lambda saved, _dtype: saved.max_shard_size)),
    Usage("default use_reentrant", _of(lambda usage: usage.checkpointing, _reentrant)),
)

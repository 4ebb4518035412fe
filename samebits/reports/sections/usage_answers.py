"""The answers of samebits/records/usage.py in a few words each: what a table has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from samebits.records.usage import UsageSignal


class Usage(NamedTuple):
    """One thing that a user does, and how to say what came of it."""

    what: str
    answer: Callable[[UsageSignal, str], str]
    """Of a signal and the dtype of its variant; '' if there is none."""


def _maps(usage: UsageSignal, _dtype: str) -> str:
    asked = usage.attentions
    if asked is None:
        return ""
    return f"{_refusal(asked.given)}{', other logits' if asked.logits_changed else ''}"


def _packed(usage: UsageSignal, dtype: str) -> str:
    packed = usage.packed
    if packed is None:
        return ""
    told = [packed.sees(way, dtype) for way in packed.ways]
    if None in told:
        refused = [way.refused for way in packed.ways if way.refused]
        return _refusal(refused[0]) if refused else ""
    if all(told):
        return "one sequence"
    if not any(told):
        return "two sequences"
    return "two; one with " + " or ".join(
        word for word, sees in zip(("neither", "mask", "cache"), told, strict=True) if sees
    )


def _keys(usage: UsageSignal, _dtype: str) -> str:
    held = usage.cache
    if held is None or not held.layers:
        return ""
    return "fewer than fed" if any(layer.keys < held.fed for layer in held.layers) else "all"


def _cache_position(usage: UsageSignal, _dtype: str) -> str:
    asked = usage.cache_position
    if asked is None:
        return ""
    if asked.wrong == "the same logits":
        return "of no effect" if asked.named else "ignored"
    return "used" if asked.wrong == "other logits" else _refusal(asked.wrong)


def _position_ids(usage: UsageSignal, _dtype: str) -> str:
    asked = usage.position_ids
    if asked is None:
        return ""
    if asked.refused:
        return _refusal(asked.refused)
    if len(asked.fed) > 1 and len(set(asked.fed)) == 1:
        return "frozen" if not asked.same_logits else "frozen, of no effect"
    return "advance" if asked.same_logits else "other logits"


def _assisted(usage: UsageSignal, _dtype: str) -> str:
    asked = usage.assisted
    if asked is None:
        return ""
    return "no assistant" if asked.plain else _outcome(asked.min_new_tokens)


def _strategy(name: str) -> Callable[[UsageSignal, str], str]:
    def answer(usage: UsageSignal, _dtype: str) -> str:
        asked = usage.strategies
        return "" if asked is None or name not in asked else _outcome(asked[name])

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
    asked = usage.checkpointing
    if asked is None:
        return ""
    return _refusal(asked.refused) if asked.refused else str(asked.use_reentrant)


def _outcome(error: str) -> str:
    """Return what a table says of an exception, '' for none."""
    if "trust_remote_code=True" in error:
        return "needs hub code"
    return _refusal(error) if error else "works"


def _refusal(text: str) -> str:
    """Return the type of an exception, or a text that is none as it is."""
    kind, colon, _ = text.partition(": ")
    return kind.rpartition(".")[2] if colon else text


USAGES = (
    Usage("output_attentions=True", _maps),
    Usage("packed position_ids", _packed),
    Usage("keys that the cache keeps", _keys),
    Usage("forward(cache_position)", _cache_position),
    Usage("generate(position_ids)", _position_ids),
    Usage("assistant, min_new_tokens", _assisted),
    Usage("penalty_alpha", _strategy("penalty_alpha")),
    Usage("num_beam_groups", _strategy("num_beam_groups")),
    Usage("safe_serialization=False", _files),
    Usage("dtype in config.json", _dtype_key),
    Usage("default max_shard_size", _shards),
    Usage("default use_reentrant", _reentrant),
)


class Place(NamedTuple):
    """A part of what was observed of a model in a stack."""

    signals: Literal["usage", "tokenizers"]
    """The field of a row, which has one signal for each stack."""
    field: str
    """Of that signal; a release said nothing where it is empty."""


SEEN_IN = {
    "SB802": Place("tokenizers", "saved_class"),
    "SB808": Place("tokenizers", "chat"),
    "SB809": Place("tokenizers", "methods"),
    "SB901": Place("usage", "attentions"),
    "SB902": Place("usage", "attentions"),
    "SB903": Place("usage", "packed"),
    "SB904": Place("usage", "cache"),
    "SB905": Place("usage", "cache_position"),
    "SB906": Place("usage", "position_ids"),
    "SB907": Place("usage", "assisted"),
    "SB908": Place("usage", "strategies"),
    "SB909": Place("usage", "saved"),
    "SB910": Place("usage", "saved"),
    "SB911": Place("usage", "checkpointing"),
}
"""Finding -> what it is seen in."""

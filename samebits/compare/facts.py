"""Which facts changed that may explain a difference, and make none by themselves?"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from samebits.compare.pair import union
from samebits.compare.weights import described_piece
from samebits.records.comparison import FactChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from samebits.records.capture import AttentionCall, Capture, SdpaCall, WeightsSignal

ABSENT = "absent"
"""Stands for a value that one side does not have."""


def changes(reference: Capture, candidate: Capture) -> dict[str, tuple[FactChange, ...]]:
    """Return what changed, by kind; a kind without changes is left out.

    Kinds: ``config``, ``load``, ``tokenizer``, ``attention.kernel``, ``weights layout``.
    """
    found = {
        "config": _config(reference, candidate),
        "load": _load(reference, candidate),
        "tokenizer": _tokenizer(reference, candidate),
        "attention.kernel": _attention(reference, candidate),
        "weights layout": _layout(reference, candidate),
    }
    return {kind: tuple(changed) for kind, changed in found.items() if changed}


def call_changes(reference: AttentionCall, candidate: AttentionCall) -> list[FactChange]:
    """Return what changed between two attention calls; where its source stands is left out."""
    mine, theirs = _call(reference), _call(candidate)
    if mine.get("sdpa") is None or theirs.get("sdpa") is None:
        return _changed(mine, theirs)
    return _changed(_flat(mine), _flat(theirs))


def material_changes(reference: AttentionCall, candidate: AttentionCall) -> list[FactChange]:
    """Return what changed between two calls that can make the same numbers come out otherwise.

    Left out is what only spells the call: strides, the dtype of a mask, heads repeated by hand
    or by enable_gqa, a scale left to its default; and the names of classes and functions.
    """
    return _changed(_matter(reference), _matter(candidate))


def _matter(call: AttentionCall) -> dict[str, Any]:
    kind = "by hand" if call.sdpa is None else "scaled_dot_product_attention"
    found: dict[str, Any] = {"computed": kind, "aten": call.aten}
    if call.sdpa is not None:
        found["masking"] = _masking(call.sdpa)
        found["scale"] = _effective_scale(call.sdpa)
        found["dropout_p"] = call.sdpa.dropout_p
    return found


def _masking(call: SdpaCall) -> str:
    given = "no mask" if call.mask is None else "a mask"
    return f"{given}, causal" if call.is_causal else given


def _effective_scale(call: SdpaCall) -> float | None:
    """Return the scale, or what it is when left out: 1 / sqrt of the head's dimension."""
    if call.scale is not None:
        return _twelve_digits(call.scale)
    head_dim = re.search(r"(\d+)\]", call.query)
    return _twelve_digits(int(head_dim.group(1)) ** -0.5) if head_dim else None


def _twelve_digits(number: float) -> float:
    """Round what two ways to write one square root make of the last digit, and no more."""
    return float(f"{number:.12g}")


def paired_calls(
    reference: Sequence[AttentionCall], candidate: Sequence[AttentionCall]
) -> list[tuple[AttentionCall, AttentionCall]]:
    """Pair calls in order of execution; by module name if their numbers differ."""
    if len(reference) == len(candidate):
        return list(zip(reference, candidate, strict=True))
    theirs: dict[str, AttentionCall] = {}
    for call in candidate:
        theirs.setdefault(call.module, call)
    return [(call, theirs[call.module]) for call in reference if call.module in theirs]


def generalised(name: str) -> str:
    """Return a name with its numbers as ``*``, so that one line speaks of all layers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _config(reference: Capture, candidate: Capture) -> list[FactChange]:
    mine, theirs = reference.signals.config, candidate.signals.config
    if mine is None or theirs is None:
        return []
    return _changed(_flat(mine), _flat(theirs))


def _load(reference: Capture, candidate: Capture) -> list[FactChange]:
    mine, theirs = reference.signals.load, candidate.signals.load
    if mine is None or theirs is None:
        return []
    return _changed(mine.model_dump(exclude={"seconds"}), theirs.model_dump(exclude={"seconds"}))


def _tokenizer(reference: Capture, candidate: Capture) -> list[FactChange]:
    mine, theirs = reference.signals.tokenizer, candidate.signals.tokenizer
    if mine is None or theirs is None:
        return []
    return _changed(_flat(mine.model_dump()), _flat(theirs.model_dump()))


def _changed(reference: dict[str, Any], candidate: dict[str, Any]) -> list[FactChange]:
    return [
        FactChange(
            what=key, reference=reference.get(key, ABSENT), candidate=candidate.get(key, ABSENT)
        )
        for key in union(reference, candidate)
        if key not in reference or key not in candidate or not _same(reference[key], candidate[key])
    ]


def _same(a: object, b: object) -> bool:
    """Return True for values that are written alike: 1, 1.0 and True are three values."""
    return type(a) is type(b) and repr(a) == repr(b)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            flat.update(_flat(inner, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def _call(call: AttentionCall) -> dict[str, Any]:
    return call.model_dump(exclude={"source", "module"})


def _attention(reference: Capture, candidate: Capture) -> list[FactChange]:
    mine, theirs = reference.signals.attention, candidate.signals.attention
    if mine is None or theirs is None:
        return []
    found = _changed(
        {"requested": mine.requested, "resolved": mine.resolved},
        {"requested": theirs.requested, "resolved": theirs.resolved},
    )
    for prompt in mine.calls:
        if prompt in theirs.calls:
            found += _prompt_calls(prompt, mine.calls[prompt], theirs.calls[prompt])
    return found


def _prompt_calls(
    prompt: str, reference: Sequence[AttentionCall], candidate: Sequence[AttentionCall]
) -> list[FactChange]:
    found = []
    if len(reference) != len(candidate):
        what = f"{prompt} · number of calls"
        found = [FactChange(what=what, reference=len(reference), candidate=len(candidate))]
    pairs = paired_calls(reference, candidate)
    each = (
        FactChange(
            what=f"{prompt} · {generalised(mine.module)} · {change.what}",
            reference=change.reference,
            candidate=change.candidate,
        )
        for mine, theirs in pairs
        for change in call_changes(mine, theirs)
    )
    return found + list(_counted(each))


def _counted(changes: Iterable[FactChange]) -> Iterator[FactChange]:
    """Yield each change once, with how often it came."""
    first: dict[str, FactChange] = {}
    times: Counter[str] = Counter()
    for change in changes:
        key = change.model_dump_json()
        first.setdefault(key, change)
        times[key] += 1
    for key, change in first.items():
        what = f"{change.what} ({times[key]} times)" if times[key] > 1 else change.what
        yield change.model_copy(update={"what": what})


def _layout(reference: Capture, candidate: Capture) -> list[FactChange]:
    """Return which checkpoint tensors are held in another way, and what else was renamed."""
    mine, theirs = reference.signals.weights, candidate.signals.weights
    if mine is None or theirs is None:
        return []
    before, after = _held(mine), _held(theirs)
    each = (
        FactChange(
            what=generalised(tensor), reference=before[tensor][0], candidate=after[tensor][0]
        )
        for tensor in before
        if tensor in after and before[tensor][1] != after[tensor][1]
    )
    return list(_counted(each))


def _held(signal: WeightsSignal) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return checkpoint tensor -> how it is held, in general words and exactly."""
    held: dict[str, list[tuple[str, str]]] = {}
    for name, facts in signal.tensors.items():
        names = " = ".join(sorted((name, *facts.aliases)))
        for piece in facts.pieces if facts.origin == "loaded" else ():
            how = described_piece(facts, piece)
            held.setdefault(piece.tensor, []).append(
                (f"{generalised(names)}{how}", f"{names}{how}")
            )
    return {
        tensor: (", ".join(sorted({g for g, _ in ways})), tuple(sorted(e for _, e in ways)))
        for tensor, ways in held.items()
    }

"""Facts that changed and may explain a difference, but are not differences themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from samebits.compare.pair import union
from samebits.compare.weights import described_piece
from samebits.records.capture import AttentionCall, Capture, SdpaCall, Signals, WeightsSignal
from samebits.records.comparison import FactChange

ABSENT = "absent"
"""Replaces a value that one side does not have."""


def changes(reference: Capture, candidate: Capture) -> dict[str, tuple[FactChange, ...]]:
    """Return the changed facts by kind; a kind without changes is left out."""
    by_kind = {kind: of(reference, candidate) for kind, of in _CHANGES.items()}
    return {kind: tuple(facts) for kind, facts in by_kind.items() if facts}


def with_more(
    facts: Mapping[str, Sequence[FactChange]], more: Mapping[str, Sequence[FactChange]]
) -> dict[str, tuple[FactChange, ...]]:
    """Return changes by kind, in the order of kinds; in each kind ``more`` comes last."""
    kinds = dict.fromkeys((*_CHANGES, *facts, *more))
    by_kind = {kind: (*facts.get(kind, ()), *more.get(kind, ())) for kind in kinds}
    return {kind: joined for kind, joined in by_kind.items() if joined}


def call_changes(reference: AttentionCall, candidate: AttentionCall) -> list[FactChange]:
    """Return what changed between two attention calls, without their source locations."""
    reference_call, candidate_call = _call_facts(reference), _call_facts(candidate)
    if reference_call.get("sdpa") is None or candidate_call.get("sdpa") is None:
        return _fact_changes(reference_call, candidate_call)
    return _fact_changes(_flattened(reference_call), _flattened(candidate_call))


def material_changes(reference: AttentionCall, candidate: AttentionCall) -> list[FactChange]:
    """Return what changed between two calls and can change the numbers.

    Left out is what only changes how the call is written: strides, the dtype of a mask, heads
    repeated by hand or by enable_gqa, a scale left to its default, and the names of classes and
    functions.
    """
    return _fact_changes(_material_facts(reference), _material_facts(candidate))


def _material_facts(call: AttentionCall) -> dict[str, Any]:
    kind = "eager" if call.sdpa is None else "SDPA"
    facts: dict[str, Any] = {"computed": kind, "aten": call.aten}
    if call.sdpa is not None:
        facts["masking"] = _masking(call.sdpa)
        facts["scale"] = _effective_scale(call.sdpa)
        facts["dropout_p"] = call.sdpa.dropout_p
    return facts


def _masking(call: SdpaCall) -> str:
    mask = "no mask" if call.mask is None else "a mask"
    return f"{mask}, causal" if call.is_causal else mask


def _effective_scale(call: SdpaCall) -> float | None:
    """Return the scale, or its default if left out: 1 / sqrt of the head dimension."""
    if call.scale is not None:
        return _rounded(call.scale)
    head_dim = re.search(r"(\d+)\]", call.query)
    return _rounded(int(head_dim.group(1)) ** -0.5) if head_dim else None


def _rounded(number: float) -> float:
    """Round to 12 digits: two ways to compute the same square root differ in the last one."""
    return float(f"{number:.12g}")


def paired_calls(
    reference: Sequence[AttentionCall], candidate: Sequence[AttentionCall]
) -> list[tuple[AttentionCall, AttentionCall]]:
    """Pair calls in order of execution, or by module name if their numbers differ."""
    if len(reference) == len(candidate):
        return list(zip(reference, candidate, strict=True))
    candidate_calls: dict[str, AttentionCall] = {}
    for call in candidate:
        candidate_calls.setdefault(call.module, call)
    return [
        (call, candidate_calls[call.module]) for call in reference if call.module in candidate_calls
    ]


def generalised(name: str) -> str:
    """Return a name with its numbers as ``*``, so that one line covers all layers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _changes_of(
    facts_of: Callable[[Signals], dict[str, Any] | None],
) -> Callable[[Capture, Capture], list[FactChange]]:
    """Return what compares the facts of both sides, and finds no change if a side has none."""

    def changes_of(reference: Capture, candidate: Capture) -> list[FactChange]:
        before, after = facts_of(reference.signals), facts_of(candidate.signals)
        return [] if before is None or after is None else _fact_changes(before, after)

    return changes_of


def setting_changes(reference: Capture, candidate: Capture) -> list[FactChange]:
    """Return the settings of torch that differ, of those that both sides' torch has."""
    of_reference, of_candidate = reference.signals.settings, candidate.signals.settings
    if of_reference is None or of_candidate is None:
        return []
    shared = of_reference.values.keys() & of_candidate.values.keys()
    before, after = (
        {name: value for name, value in side.values.items() if name in shared}
        for side in (of_reference, of_candidate)
    )
    return _fact_changes(before, after)


def _fact_changes(reference: dict[str, Any], candidate: dict[str, Any]) -> list[FactChange]:
    return [
        FactChange(
            what=key, reference=reference.get(key, ABSENT), candidate=candidate.get(key, ABSENT)
        )
        for key in union(reference, candidate)
        if key not in reference or key not in candidate or not _same(reference[key], candidate[key])
    ]


def _same(a: object, b: object) -> bool:
    """Return True if the type and the text are equal: 1, 1.0 and True are three values."""
    return type(a) is type(b) and repr(a) == repr(b)


def _flattened(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict) and item:
            flat.update(_flattened(item, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def _call_facts(call: AttentionCall) -> dict[str, Any]:
    return call.model_dump(exclude={"source", "module"})


def _attention_changes(reference: Capture, candidate: Capture) -> list[FactChange]:
    reference_facts, candidate_facts = reference.signals.attention, candidate.signals.attention
    if reference_facts is None or candidate_facts is None:
        return []
    changes = _fact_changes(
        {"requested": reference_facts.requested, "resolved": reference_facts.resolved},
        {"requested": candidate_facts.requested, "resolved": candidate_facts.resolved},
    )
    for prompt in reference_facts.calls:
        if prompt in candidate_facts.calls:
            changes += _prompt_call_changes(
                prompt, reference_facts.calls[prompt], candidate_facts.calls[prompt]
            )
    return changes


def _prompt_call_changes(
    prompt: str, reference: Sequence[AttentionCall], candidate: Sequence[AttentionCall]
) -> list[FactChange]:
    changes = []
    if len(reference) != len(candidate):
        what = f"{prompt} · number of calls"
        changes = [
            FactChange(what=what, prompt=prompt, reference=len(reference), candidate=len(candidate))
        ]
    pairs = paired_calls(reference, candidate)
    details = (
        FactChange(
            what=f"{prompt} · {generalised(reference_call.module)} · {change.what}",
            prompt=prompt,
            module=generalised(reference_call.module),
            reference=change.reference,
            candidate=change.candidate,
        )
        for reference_call, candidate_call in pairs
        for change in call_changes(reference_call, candidate_call)
    )
    return changes + list(_with_counts(details))


def _with_counts(changes: Iterable[FactChange]) -> Iterator[FactChange]:
    """Yield each change once, with its number of occurrences."""
    first: dict[str, FactChange] = {}
    counts: Counter[str] = Counter()
    for change in changes:
        key = change.model_dump_json()
        first.setdefault(key, change)
        counts[key] += 1
    for key, change in first.items():
        what = f"{change.what} ({counts[key]} times)" if counts[key] > 1 else change.what
        yield change.model_copy(update={"what": what})


def _layout_changes(reference: Capture, candidate: Capture) -> list[FactChange]:
    """Return the checkpoint tensors whose layout in memory changed, and what else was renamed."""
    reference_weights, candidate_weights = reference.signals.weights, candidate.signals.weights
    if reference_weights is None or candidate_weights is None:
        return []
    before, after = _tensor_layouts(reference_weights), _tensor_layouts(candidate_weights)
    changes = (
        FactChange(
            what=generalised(tensor), reference=before[tensor][0], candidate=after[tensor][0]
        )
        for tensor in before
        if tensor in after and before[tensor][1] != after[tensor][1]
    )
    return list(_with_counts(changes))


def _tensor_layouts(signal: WeightsSignal) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return checkpoint tensor -> its layout, in generalised names and exactly."""
    layouts: dict[str, list[tuple[str, str]]] = {}
    for name, facts in signal.tensors.items():
        names = " = ".join(sorted((name, *facts.aliases)))
        for piece in facts.pieces if facts.origin == "loaded" else ():
            piece_text = described_piece(facts, piece)
            layouts.setdefault(piece.tensor, []).append(
                (f"{generalised(names)}{piece_text}", f"{names}{piece_text}")
            )
    return {
        tensor: (", ".join(sorted({g for g, _ in pairs})), tuple(sorted(e for _, e in pairs)))
        for tensor, pairs in layouts.items()
    }


_CHANGES = {
    "config": _changes_of(lambda s: None if s.config is None else _flattened(s.config)),
    "load": _changes_of(
        lambda s: None if s.load is None else s.load.model_dump(exclude={"seconds"})
    ),
    "tokenizer": _changes_of(
        lambda s: (
            None
            if s.tokenizer is None
            else _flattened(s.tokenizer.model_dump(exclude={"unlike", "written"}))
        )
    ),
    "attention.kernel": _attention_changes,
    "weights layout": _layout_changes,
    "settings": setting_changes,
}
"""Kind -> the facts of it that changed."""

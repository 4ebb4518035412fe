"""Comparison of the buffers that are not weights, and of the rotary frequencies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import Pair, TensorSource, union, unreadable_items
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.records.capture import BufferFacts, InvFreqFacts, Signals
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.subject import Reason, Subject

Frequencies = dict[str, "InvFreqFacts"]
Content = tuple[str, float | None]


def buffers(pair: Pair) -> SignalComparison:
    """Compare the buffers that are neither weights nor rotary frequencies, by name.

    A buffer that only one side has is not a difference: whether it matters shows in what is
    computed from it. A buffer that has the same bytes under another name was renamed.
    """
    reference, candidate = pair.reference.signals.buffers, pair.candidate.signals.buffers
    if reference is None or candidate is None:
        return not_observed(
            pair, "buffers", reference=reference is None, candidate=candidate is None
        )
    persistent = {
        name for side in (reference, candidate) for name, facts in side.items() if facts.persistent
    }
    reference_buffers, candidate_buffers = (
        _compared(reference, persistent),
        _compared(candidate, persistent),
    )
    unreadable = tuple(unreadable_items(pair, "buffers"))
    if not reference_buffers and not candidate_buffers and not unreadable:
        return _absent_on_both("buffers", "neither side has buffers besides weights and inv_freq")
    return signal_comparison(
        "buffers", (*_buffer_items(reference_buffers, candidate_buffers, pair.values), *unreadable)
    )


def inv_freq(pair: Pair) -> SignalComparison:
    """Compare the distinct rotary frequencies, whichever modules hold them.

    Modules per layer that became one shared module hold the same set. Frequencies that do not match
    are paired by name, then by role (local or global attention, text, vision or audio), then by
    order.
    """
    reference, candidate = pair.reference.signals.inv_freq, pair.candidate.signals.inv_freq
    if reference is None or candidate is None:
        return not_observed(
            pair, "inv_freq", reference=reference is None, candidate=candidate is None
        )
    reference_tables, candidate_tables = (
        _read(reference, pair.reference.signals.buffers),
        _read(candidate, pair.candidate.signals.buffers),
    )
    if not reference_tables and not candidate_tables:
        return _absent_on_both("inv_freq", "neither side has rotary frequencies")
    if any(_only_replaced(side.signals) for side in (pair.reference, pair.candidate)):
        note = "the forward of one side writes its frequencies before it reads them"
        return _left_out("inv_freq", note)
    if not reference_tables or not candidate_tables:
        return not_observed(
            pair, "inv_freq", reference=not reference_tables, candidate=not candidate_tables
        )
    return signal_comparison(
        "inv_freq", _frequency_items(reference_tables, candidate_tables, pair.values)
    )


def _absent_on_both(signal: Literal["buffers", "inv_freq"], note: str) -> SignalComparison:
    """Return the comparison of a signal that both sides looked for and neither has."""
    return _left_out(signal, note, Reason.ON_NEITHER_SIDE)


def _left_out(
    signal: Literal["buffers", "inv_freq"], note: str, reason: Reason | None = None
) -> SignalComparison:
    return SignalComparison(
        signal=signal,
        outcome="not compared",
        n_items=0,
        n_differ=0,
        note=note,
        reason=reason,
        excused=True,
    )


def _compared(side: dict[str, BufferFacts], persistent: set[str]) -> dict[str, BufferFacts]:
    """Return the buffers of this signal, without those that forward replaces before it reads them."""
    return {
        name: facts
        for name, facts in side.items()
        if name not in persistent and not name.endswith("inv_freq") and not facts.replaced
    }


def _buffer_items(
    reference: dict[str, BufferFacts], candidate: dict[str, BufferFacts], values: TensorSource
) -> Iterator[ItemComparison]:
    for name in union(reference, candidate):
        subject = Subject(tensor=name)
        if name in reference and name in candidate:
            yield compare_tensors(subject, reference[name].ref, candidate[name].ref, values)
        elif name in reference:
            note = "the other side has no such buffer"
            yield _renamed(subject, reference[name], candidate) or unpaired(
                subject, reference[name].ref, None, note, excused=True
            )
        elif _renamed(subject, candidate[name], reference) is None:
            note = "the reference has no such buffer"
            yield unpaired(subject, None, candidate[name].ref, note, excused=True)


def _renamed(
    subject: Subject, facts: BufferFacts, other_side: dict[str, BufferFacts]
) -> ItemComparison | None:
    """Return the pair with the first buffer of the same bytes on the other side, if any.

    Several buffers may pair with the same one: a buffer of every layer may have become one shared
    buffer.
    """
    ref = facts.ref
    same = next((n for n, twin in other_side.items() if twin.ref.hash == ref.hash), None)
    if same is None or not ref.numel:
        return None
    note = f"{same} on the other side"
    return ItemComparison(
        subject=subject, outcome="identical", reference=ref, candidate=ref, note=note
    )


def _read(side: Frequencies, buffers: dict[str, BufferFacts] | None) -> Frequencies:
    """Return the frequencies without their copies, and without those that forward replaces before it reads them."""
    replaced = {name for name, facts in (buffers or {}).items() if facts.replaced}
    return {
        name: facts
        for name, facts in side.items()
        if "original_inv_freq" not in name and name not in replaced
    }


def _only_replaced(signals: Signals) -> bool:
    """Return True if forward replaces all frequencies of a side before it reads them."""
    buffers = signals.buffers or {}
    names = signals.inv_freq or {}
    return bool(names) and all(name in buffers and buffers[name].replaced for name in names)


def _frequency_items(
    reference: Frequencies, candidate: Frequencies, values: TensorSource
) -> Iterator[ItemComparison]:
    reference_rest, candidate_rest = dict(reference), dict(candidate)
    for name in [name for name in reference if name in candidate]:
        yield _frequencies(
            Subject(tensor=name), reference_rest.pop(name), candidate_rest.pop(name), values
        )
    yield from _same_content(reference_rest, candidate_rest, reference, candidate)
    for name, counterpart in _pair_remaining(reference_rest, candidate_rest):
        yield _frequencies(
            Subject(tensor=name, counterpart=counterpart),
            reference_rest.pop(name),
            candidate_rest.pop(counterpart),
            values,
        )
    for name, facts in reference_rest.items():
        note = "no counterpart on the other side"
        yield unpaired(Subject(tensor=name), facts.ref, None, note, excused=True)
    for name, facts in candidate_rest.items():
        note = "no counterpart in the reference"
        yield unpaired(Subject(tensor=name), None, facts.ref, note, excused=True)


def _same_content(
    reference_rest: Frequencies,
    candidate_rest: Frequencies,
    reference: Frequencies,
    candidate: Frequencies,
) -> Iterator[ItemComparison]:
    """Remove the frequencies that the other side has too in the same role; yield each pair once."""
    for rest, other_side, from_reference in (
        (reference_rest, candidate, True),
        (candidate_rest, reference, False),
    ):
        for name, facts in list(rest.items()):
            counterpart = _counterpart(name, facts, other_side)
            if counterpart is None:
                continue
            del rest[name]
            if from_reference:  # the candidate's pass finds the same pair again
                subject = Subject(tensor=name, counterpart=counterpart)
                yield _identical_item(subject, facts, other_side[counterpart])


def _counterpart(name: str, facts: InvFreqFacts, other_side: Frequencies) -> str | None:
    matches = (n for n, twin in other_side.items() if _content_key(twin) == _content_key(facts))
    return next((n for n in matches if role(n) == role(name)), None)


def _pair_remaining(
    reference_rest: Frequencies, candidate_rest: Frequencies
) -> list[tuple[str, str]]:
    """Pair the remaining frequencies by role, then by order; each content once per side."""
    reference_names, candidate_names = (
        _drop_duplicates(reference_rest),
        _drop_duplicates(candidate_rest),
    )
    pairs = []
    for name in list(reference_names):
        counterpart = next((n for n in candidate_names if role(n) == role(name)), None)
        if counterpart is not None:
            pairs.append((name, counterpart))
            reference_names.remove(name)
            candidate_names.remove(counterpart)
    return [*pairs, *zip(reference_names, candidate_names, strict=False)]


def _drop_duplicates(side: Frequencies) -> list[str]:
    first_names: dict[tuple[Content, str], str] = {}
    for name, facts in side.items():
        first_names.setdefault((_content_key(facts), role(name)), name)
    names = list(first_names.values())
    for name in [name for name in side if name not in names]:
        del side[name]  # the first name represents all with the same content
    return names


def _content_key(facts: InvFreqFacts) -> Content:
    return facts.ref.hash, facts.attention_scaling


def role(name: str) -> str:
    """Return what a rotary embedding is for, read from its name in any release.

    ``rotary_emb_local`` up to 4.5x is ``sliding_attention`` in 5.x.
    """
    kind = "local" if re.search(r"local|sliding", name) else "global"
    tower = re.search(r"vision|visual|audio", name)
    return f"{kind} {tower.group() if tower else 'text'}".replace("visual", "vision")


def _frequencies(
    subject: Subject, reference: InvFreqFacts, candidate: InvFreqFacts, values: TensorSource
) -> ItemComparison:
    if len(reference.ref.shape) != len(candidate.ref.shape):
        # a table of angles for all positions, as Pixtral's in 4.57, and frequencies are other quantities
        note = f"shape {list(candidate.ref.shape)} on the other side: a different quantity under this name"
        return unpaired(subject, reference.ref, None, note, excused=True)
    item = compare_tensors(subject, reference.ref, candidate.ref, values)
    scalings = reference.attention_scaling, candidate.attention_scaling
    if scalings[0] == scalings[1]:
        return item
    note = f"attention_scaling {scalings[0]} in the reference, {scalings[1]} in the candidate"
    if None in scalings:  # that release does not expose it, which is not a difference
        return item.model_copy(update={"note": f"{item.note}; {note}".strip("; ")})
    notes = f"{note}; {item.note}" if item.note else note
    return item.model_copy(update={"outcome": "differs", "note": notes, "excused": False})


def _identical_item(
    subject: Subject, reference: InvFreqFacts, candidate: InvFreqFacts
) -> ItemComparison:
    return ItemComparison(
        subject=subject, outcome="identical", reference=reference.ref, candidate=candidate.ref
    )

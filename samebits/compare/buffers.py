"""Do both sides hold the same buffers besides the weights, and the same rotary frequencies?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import bare, union
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.records.comparison import ItemComparison, SignalComparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.pair import Pair, TensorSource
    from samebits.records.capture import BufferFacts, InvFreqFacts

Frequencies = dict[str, "InvFreqFacts"]
Content = tuple[str, float | None]

NEITHER = "neither side has"
"""Begins the note of a signal that is not there to be compared, on either side."""


def buffers(pair: Pair) -> SignalComparison:
    """Compare the buffers that are neither weights nor rotary frequencies, by name.

    A buffer that one side does not have is no difference: whether it matters shows in what
    is computed. One that pairs by equal content was renamed.
    """
    reference, candidate = pair.reference.signals.buffers, pair.candidate.signals.buffers
    if reference is None or candidate is None:
        return not_observed(
            pair, "buffers", reference=reference is None, candidate=candidate is None
        )
    persistent = {
        name for side in (reference, candidate) for name, facts in side.items() if facts.persistent
    }
    mine, theirs = _judged_here(reference, persistent), _judged_here(candidate, persistent)
    untold = tuple(bare(pair, "buffers"))
    if not mine and not theirs and not untold:
        return nothing_there("buffers", f"{NEITHER} buffers besides weights and inv_freq")
    return signal_comparison("buffers", (*_buffer_items(mine, theirs, pair.values), *untold))


def inv_freq(pair: Pair) -> SignalComparison:
    """Compare the distinct rotary frequencies, wherever the modules that hold them sit.

    Modules per layer that became one shared module hold the same set. What is not the same
    pairs by name, then by role (local or global attention, text, vision or audio), then by
    order.
    """
    reference, candidate = pair.reference.signals.inv_freq, pair.candidate.signals.inv_freq
    if reference is None or candidate is None:
        return not_observed(
            pair, "inv_freq", reference=reference is None, candidate=candidate is None
        )
    mine, theirs = _without_originals(reference), _without_originals(candidate)
    if not mine and not theirs:
        return nothing_there("inv_freq", f"{NEITHER} rotary frequencies")
    if not mine or not theirs:
        return not_observed(pair, "inv_freq", reference=not mine, candidate=not theirs)
    return signal_comparison("inv_freq", _frequency_items(mine, theirs, pair.values))


def nothing_there(signal: Literal["buffers", "inv_freq"], note: str) -> SignalComparison:
    """Return the comparison of a signal that both sides looked for and neither has."""
    return SignalComparison(
        signal=signal, outcome="not compared", n_items=0, n_differ=0, note=note, excused=True
    )


def _judged_here(side: dict[str, BufferFacts], persistent: set[str]) -> dict[str, BufferFacts]:
    return {
        name: facts
        for name, facts in side.items()
        if name not in persistent and not name.endswith("inv_freq")
    }


def _buffer_items(
    reference: dict[str, BufferFacts], candidate: dict[str, BufferFacts], values: TensorSource
) -> Iterator[ItemComparison]:
    for name in union(reference, candidate):
        if name in reference and name in candidate:
            yield compare_tensors(name, reference[name].ref, candidate[name].ref, values)
        elif name in reference:
            yield _renamed(name, reference[name], candidate) or unpaired(
                name, reference[name].ref, None, "the other side has no such buffer", excused=True
            )
        elif _renamed(name, candidate[name], reference) is None:
            yield unpaired(
                name, None, candidate[name].ref, "the reference has no such buffer", excused=True
            )


def _renamed(name: str, facts: BufferFacts, other: dict[str, BufferFacts]) -> ItemComparison | None:
    """Return the pair with the first buffer of the same bytes on the other side, if any.

    Many may pair with one: a buffer of every layer that became one for all.
    """
    ref = facts.ref
    same = next((n for n, there in other.items() if there.ref.hash == ref.hash), None)
    if same is None or not ref.numel:
        return None
    note = f"{same} on the other side"
    return ItemComparison(name=name, outcome="identical", reference=ref, candidate=ref, note=note)


def _without_originals(side: Frequencies) -> Frequencies:
    return {name: facts for name, facts in side.items() if "original_inv_freq" not in name}


def _frequency_items(
    reference: Frequencies, candidate: Frequencies, values: TensorSource
) -> Iterator[ItemComparison]:
    mine, theirs = dict(reference), dict(candidate)
    for name in [name for name in reference if name in candidate]:
        yield _frequencies(name, mine.pop(name), theirs.pop(name), values)
    yield from _same_content(mine, theirs, reference, candidate)
    for name, other in _pairs_left(mine, theirs):
        shown = f"{name} → {other}"
        yield _frequencies(shown, mine.pop(name), theirs.pop(other), values)
    for name, facts in mine.items():
        yield unpaired(name, facts.ref, None, "no counterpart on the other side", excused=True)
    for name, facts in theirs.items():
        yield unpaired(name, None, facts.ref, "no counterpart in the reference", excused=True)


def _same_content(
    mine: Frequencies, theirs: Frequencies, reference: Frequencies, candidate: Frequencies
) -> Iterator[ItemComparison]:
    """Take out of ``mine`` and ``theirs`` what the other side holds too, in the same role."""
    for left, other, ours in ((mine, candidate, True), (theirs, reference, False)):
        for name, facts in list(left.items()):
            same = _counterpart(name, facts, other)
            if same is None:
                continue
            del left[name]
            if ours:  # from the other side it is the same pair once more
                yield _frequencies_item(f"{name} → {same}", facts, other[same])


def _counterpart(name: str, facts: InvFreqFacts, other: Frequencies) -> str | None:
    found = (n for n, there in other.items() if _content(there) == _content(facts))
    return next((n for n in found if role(n) == role(name)), None)


def _pairs_left(mine: Frequencies, theirs: Frequencies) -> list[tuple[str, str]]:
    """Pair what is left by role, then by order; each distinct content once per side."""
    first, second = _distinct(mine), _distinct(theirs)
    pairs = []
    for name in list(first):
        other = next((n for n in second if role(n) == role(name)), None)
        if other is not None:
            pairs.append((name, other))
            first.remove(name)
            second.remove(other)
    return [*pairs, *zip(first, second, strict=False)]


def _distinct(side: Frequencies) -> list[str]:
    first: dict[tuple[Content, str], str] = {}
    for name, facts in side.items():
        first.setdefault((_content(facts), role(name)), name)
    kept = list(first.values())
    for name in [name for name in side if name not in kept]:
        del side[name]  # stands for no other frequencies than its first namesake
    return kept


def _content(facts: InvFreqFacts) -> Content:
    return facts.ref.hash, facts.attention_scaling


def role(name: str) -> str:
    """Return what a rotary embedding is for, read from its name over all versions.

    ``rotary_emb_local`` through 4.5x is ``sliding_attention`` in 5.x.
    """
    kind = "local" if re.search(r"local|sliding", name) else "global"
    tower = re.search(r"vision|visual|audio", name)
    return f"{kind} {tower.group() if tower else 'text'}".replace("visual", "vision")


def _frequencies(
    name: str, reference: InvFreqFacts, candidate: InvFreqFacts, values: TensorSource
) -> ItemComparison:
    item = compare_tensors(name, reference.ref, candidate.ref, values)
    scalings = reference.attention_scaling, candidate.attention_scaling
    if scalings[0] == scalings[1]:
        return item
    note = f"attention_scaling {scalings[0]} in the reference, {scalings[1]} here"
    if None in scalings:  # not to be read in that version: no sign of a difference
        return item.model_copy(update={"note": f"{item.note}; {note}".strip("; ")})
    notes = f"{note}; {item.note}" if item.note else note
    return item.model_copy(update={"outcome": "differs", "note": notes, "excused": False})


def _frequencies_item(
    name: str, reference: InvFreqFacts, candidate: InvFreqFacts
) -> ItemComparison:
    return ItemComparison(
        name=name, outcome="identical", reference=reference.ref, candidate=candidate.ref
    )

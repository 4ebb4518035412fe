"""The outcome of a signal, made from the outcomes of its items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samebits.compare.pair import Pair
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Signal

ONE_SIDED = frozenset({"only here", "only in reference"})
NOTHING = "there was nothing to compare"


def differs(item: ItemComparison) -> bool:
    """Return True if the item makes its signal differ."""
    return not item.excused and (item.outcome == "differs" or item.outcome in ONE_SIDED)


def differing_items(
    signals: Iterable[SignalComparison], *names: Signal
) -> Iterator[ItemComparison]:
    """Yield the items that differ of the signals of these names."""
    for signal in signals:
        if signal.signal in names:
            yield from filter(differs, signal.items)


def has_other_shape(item: ItemComparison) -> bool:
    """Return True if both sides have the tensor, in different shapes."""
    reference, candidate = item.reference, item.candidate
    return bool(reference and candidate and reference.shape != candidate.shape)


def has_other_size(item: ItemComparison) -> bool:
    """Return True if both sides have the tensor, with different numbers of elements."""
    reference, candidate = item.reference, item.candidate
    return bool(reference and candidate and reference.numel != candidate.numel)


def ran_forward(signals: Iterable[SignalComparison]) -> bool:
    """Return True if both sides ran a forward over at least one prompt."""
    return any(signal.signal == "inputs" and signal.n_items for signal in signals)


def signal_comparison(
    signal: Signal, items: Iterable[ItemComparison], *, show_all: bool = False
) -> SignalComparison:
    """Return the comparison of a signal made of ``items``.

    A signal without a compared item is never identical. An item that could not be compared and is
    not excused keeps the signal from being identical. Identical items without a note are left out
    unless ``show_all``.
    """
    items = tuple(items)
    n_differ = sum(differs(item) for item in items)
    n_same = sum(item.outcome == "identical" for item in items)
    blocked = [item for item in items if item.outcome == "not compared" and not item.excused]
    not_compared = [item for item in items if item.outcome == "not compared"]
    shown = items if show_all else tuple(item for item in items if _worth_showing(item))
    common = SignalComparison(
        signal=signal,
        outcome="differs",
        n_items=n_same + n_differ,
        n_differ=n_differ,
        items=shown,
        note="; ".join(dict.fromkeys(f"{item.name}: {item.note}" for item in not_compared[:3])),
    )
    if n_differ:
        return common
    if blocked:
        reason = f"{blocked[0].name}: {blocked[0].note}"
        return common.model_copy(update={"outcome": "not compared", "note": reason})
    if n_same:
        return common.model_copy(update={"outcome": "identical"})
    reason = common.note or _without_counterpart(items) or NOTHING
    update = {"outcome": "not compared", "note": reason, "excused": bool(items)}
    return common.model_copy(update=update)


def not_observed(
    pair: Pair, signal: Signal, *, reference: bool, candidate: bool
) -> SignalComparison:
    """Return the comparison of a signal that was not observed on the sides that are True."""
    note, excused = pair.missing(signal, None, reference=reference, candidate=candidate)
    return SignalComparison(
        signal=signal, outcome="not compared", n_items=0, n_differ=0, note=note, excused=excused
    )


def _worth_showing(item: ItemComparison) -> bool:
    return item.outcome != "identical" or bool(item.note) or item.pad_rows == "differ"


def _without_counterpart(items: tuple[ItemComparison, ...]) -> str:
    """Return how many items only one side has, '' if there are none."""
    counts = [
        sum(item.outcome == side for item in items) for side in ("only in reference", "only here")
    ]
    return (
        f"{counts[0]:,} only in the reference, {counts[1]:,} only in the candidate"
        if any(counts)
        else ""
    )

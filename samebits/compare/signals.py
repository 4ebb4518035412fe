"""Comparison of a run of the reference cell with a run of a candidate cell, signal by signal.

Each signal has one function, from two runs to one :class:`SignalComparison`. The functions are in
the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Iterable

from samebits.compare.facts import changes
from samebits.compare.pair import Pair, TensorSource
from samebits.compare.probes import informing
from samebits.compare.registry import units_of
from samebits.compare.stability import agrees, disagreements, never_written
from samebits.records.capture import Capture
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import CellId, Signal
from samebits.records.tensor import NUMPY_DTYPES, TensorRef

__all__ = [
    "TensorSource",
    "agrees",
    "changes",
    "compare",
    "disagreements",
    "informing",
    "never_written",
    "wanted",
]


def compare(
    reference: Capture, candidate: Capture, values: TensorSource
) -> tuple[SignalComparison, ...]:
    """Compare two complete runs, signal by signal, in the order of data flow."""
    pair = Pair(reference, candidate, values)
    compared = (unit.compare(pair) for unit in units_of(reference, candidate))
    return tuple(signal for signal in compared if signal is not None)


def wanted(
    reference: Capture,
    candidate: Capture,
    signals: Iterable[SignalComparison],
    values: TensorSource,
) -> tuple[tuple[CellId, tuple[str, ...]], ...]:
    """Return, for each of the two cells, the hashes whose values a second look should fetch.

    These are the tensors that differ, or could not be judged, without values.
    """
    pairs = [
        pair
        for signal in signals
        for item in signal.items
        if (pair := _unmeasured(signal.signal, item))
    ]
    fetched = (
        (cell, tuple(dict.fromkeys(ref.hash for ref in refs if not values.has(ref))))
        for cell, refs in (
            (reference.cell, [ref for ref, _ in pairs]),
            (candidate.cell, [ref for _, ref in pairs]),
        )
    )
    return tuple((cell, hashes) for cell, hashes in fetched if hashes)


def _unmeasured(signal: Signal, item: ItemComparison) -> tuple[TensorRef, TensorRef] | None:
    """Return both tensors of an item that lacks metrics only because the values are missing."""
    reference, candidate = item.reference, item.candidate
    if reference is None or candidate is None or item.metrics is not None or item.excused:
        return None
    # Decoding may end earlier on one side; the steps before that are compared.
    first = 1 if signal == "decode" else 0
    if (
        item.outcome not in ("differs", "not compared")
        or reference.shape[first:] != candidate.shape[first:]
    ):
        return None
    return (
        (reference, candidate)
        if {reference.dtype, candidate.dtype} <= NUMPY_DTYPES.keys()
        else None
    )

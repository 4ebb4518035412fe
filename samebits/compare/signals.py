"""What is the same and what differs between a run of the reference cell and one of a candidate?

Each signal has one function, from two runs to one :class:`SignalComparison`; the functions
stand in samebits/comparing/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.buffers import buffers, inv_freq
from samebits.compare.facts import changes
from samebits.compare.forwards import decode, greedy, hidden_states, inputs, logits
from samebits.compare.pair import Pair, TensorSource
from samebits.compare.stability import disagreements, never_written
from samebits.compare.weights import weights
from samebits.records.tensor import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from samebits.records.capture import Capture
    from samebits.records.comparison import ItemComparison, SignalComparison
    from samebits.records.ids import CellId, Signal
    from samebits.records.tensor import TensorRef

__all__ = ["TensorSource", "changes", "compare", "disagreements", "never_written", "wanted"]

JUDGED: dict[Signal, Callable[[Pair], SignalComparison]] = {
    "inputs": inputs,
    "weights": weights,
    "buffers": buffers,
    "inv_freq": inv_freq,
    "hidden_states": hidden_states,
    "logits": logits,
    "decode": decode,
    "greedy": greedy,
}
"""The signals that make a verdict, in the order in which data flows; another one goes here."""


def compare(
    reference: Capture, candidate: Capture, values: TensorSource
) -> tuple[SignalComparison, ...]:
    """Compare two complete runs, signal by signal, in the order of data flow."""
    pair = Pair(reference, candidate, values)
    return tuple(judge(pair) for judge in JUDGED.values())


def wanted(
    reference: Capture,
    candidate: Capture,
    signals: Iterable[SignalComparison],
    values: TensorSource,
) -> tuple[tuple[CellId, tuple[str, ...]], ...]:
    """Return, for each of the two cells, the hashes whose values a second look should fetch.

    They are those that were found to differ, or could not be judged, for want of values.
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
            (reference.cell, [one for one, _ in pairs]),
            (candidate.cell, [other for _, other in pairs]),
        )
    )
    return tuple((cell, hashes) for cell, hashes in fetched if hashes)


def _unmeasured(signal: Signal, item: ItemComparison) -> tuple[TensorRef, TensorRef] | None:
    """Return both tensors of an item that has no metrics and, with the values, would have."""
    one, other = item.reference, item.candidate
    if one is None or other is None or item.metrics is not None or item.excused:
        return None
    # What is decoded may end earlier on one side, and is compared up to there.
    first = 1 if signal == "decode" else 0
    if item.outcome not in ("differs", "not compared") or one.shape[first:] != other.shape[first:]:
        return None
    return (one, other) if {one.dtype, other.dtype} <= NUMPY_DTYPES.keys() else None

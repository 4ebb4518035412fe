"""What must a pair of cells be asked on the ladder?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from samebits.ladder.alignment import to_align
from samebits.ladder.constants import constants
from samebits.records.record import Record
from samebits.records.tensor import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.compare.pair import TensorSource
    from samebits.records.capture import Capture
    from samebits.records.comparison import SignalComparison
    from samebits.records.ladder import Constant
    from samebits.records.tensor import TensorRef


class Ask(Record):
    """What one cell is to do on the ladder."""

    forced: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Row -> the tokens that generate() is made to choose: the reference's."""
    rounded: dict[str, str] = Field(default_factory=dict)
    """Tensor in memory -> the smaller dtype that the other side holds it in."""
    again: str = ""
    """What to compute once more with all tensors aligned in memory: ``forward short``, ``decode
    short``; '' for nothing."""
    tables: bool = False
    """Compute a model's own tables again in float64: one that was rounded when the model was made
    leaves a part of a difference to code that evaluates its formula."""


def asks(
    reference: Capture,
    candidate: Capture,
    signals: tuple[SignalComparison, ...],
    values: TensorSource,
) -> tuple[Ask, Ask] | None:
    """Return what to ask the reference and the candidate; None where bytes decide by themselves.

    The ladder is also climbed where the constants have decided: its figures are worth seeing.
    """
    inputs = next((s for s in signals if s.signal == "inputs"), None)
    if inputs is None or inputs.outcome == "differs":
        return None
    forced = {row: facts.ids for row, facts in (reference.signals.greedy or {}).items()}
    casts = [found for found in constants(signals, values) if found.kind == "cast"]
    again = to_align(reference, signals)
    return (
        Ask(
            forced=forced,
            rounded=dict(_rounded(casts, reference, candidate, "candidate")),
            again=again,
        ),
        Ask(
            forced=forced,
            rounded=dict(_rounded(casts, candidate, reference, "reference")),
            again=again,
        ),
    )


def _rounded(
    casts: Iterable[Constant], finer: Capture, coarser: Capture, side: str
) -> Iterator[tuple[str, str]]:
    """Yield the tensors of ``finer`` that the other side holds in a smaller dtype, and in which."""
    for cast in casts:
        if cast.coarser != side:
            continue
        smaller = next((ref.dtype for _, ref in _carriers(coarser, cast.name)), None)
        for name, ref in _carriers(finer, cast.name):
            if smaller is not None and _bytes(ref.dtype) > _bytes(smaller):
                yield name, smaller


def _bytes(dtype: str) -> int:
    return NUMPY_DTYPES[dtype].itemsize


def _carriers(capture: Capture, name: str) -> Iterator[tuple[str, TensorRef]]:
    """Yield the tensors in memory that an item's name speaks of, checkpoint tensors included.

    An item of two names (``a → b``) speaks of both.
    """
    names = set(name.split(" → "))
    weights = capture.signals.weights
    for own, facts in (weights.tensors if weights is not None else {}).items():
        told = {own, *facts.aliases, *(piece.tensor for piece in facts.pieces)}
        if told & names:
            yield own, facts.ref
    for own, buffer in (capture.signals.buffers or {}).items():
        if own in names:
            yield own, buffer.ref

"""The jobs that the precision ladder gives to a pair of cells."""

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
    from samebits.records.subject import Subject
    from samebits.records.tensor import TensorRef


class Ask(Record):
    """The job of one cell on the ladder."""

    forced: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Row -> the tokens that generate() is forced to choose: those of the reference."""
    rounded: dict[str, str] = Field(default_factory=dict)
    """Tensor in memory -> the smaller dtype in which the other side holds it."""
    again: str = ""
    """What to compute again with all tensors aligned in memory, such as ``forward short`` or
    ``decode short``; '' for nothing."""
    tables: bool = False
    """Compute a model's own tables again in float64. A table that was rounded when the model was
    made leaves a part of the difference to code that evaluates its formula."""


def asks(
    reference: Capture,
    candidate: Capture,
    signals: tuple[SignalComparison, ...],
    values: TensorSource,
) -> tuple[Ask, Ask] | None:
    """Return the jobs of the reference and the candidate; None if the inputs decide already.

    The ladder also runs where the constants have decided, because its figures are worth showing.
    """
    inputs = next((s for s in signals if s.signal == "inputs"), None)
    if inputs is None or inputs.outcome == "differs":
        return None
    forced = {row: facts.ids for row, facts in (reference.signals.greedy or {}).items()}
    casts = [constant for constant in constants(signals, values) if constant.kind == "cast"]
    aligned_again = to_align(reference, signals)
    return (
        Ask(
            forced=forced,
            rounded=dict(_rounded_tensors(casts, reference, candidate, "candidate")),
            again=aligned_again,
        ),
        Ask(
            forced=forced,
            rounded=dict(_rounded_tensors(casts, candidate, reference, "reference")),
            again=aligned_again,
        ),
    )


def _rounded_tensors(
    casts: Iterable[Constant], finer: Capture, coarser: Capture, side: str
) -> Iterator[tuple[str, str]]:
    """Yield the tensors of ``finer`` that the other side holds in a smaller dtype, and which."""
    for cast in casts:
        if cast.coarser != side:
            continue
        smaller = next((ref.dtype for _, ref in _carriers(coarser, cast.subject)), None)
        for name, ref in _carriers(finer, cast.subject):
            if smaller is not None and _element_size(ref.dtype) > _element_size(smaller):
                yield name, smaller


def _element_size(dtype: str) -> int:
    return NUMPY_DTYPES[dtype].itemsize


def _carriers(capture: Capture, subject: Subject) -> Iterator[tuple[str, TensorRef]]:
    """Yield the tensors in memory that a subject names, by their checkpoint names too."""
    names = set(subject.names)
    weights = capture.signals.weights
    for tensor, facts in (weights.tensors if weights is not None else {}).items():
        tensor_names = {tensor, *facts.aliases, *(piece.tensor for piece in facts.pieces)}
        if tensor_names & names:
            yield tensor, facts.ref
    for tensor, buffer in (capture.signals.buffers or {}).items():
        if tensor in names:
            yield tensor, buffer.ref

"""The judgement of two trainings of one model, as a plain step or by Trainer.

Equal bytes are equal. What differs is judged by both sides' float64, by the rule of the precision
ladder and without a tolerance: rounding shrinks with the precision, another function does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from samebits.compare.phases import both_raise
from samebits.compare.standing import LEAKED, NOT_FINITE, judged
from samebits.ladder.distance import Distance, tensor_distance
from samebits.text.lists import grouped

if TYPE_CHECKING:
    from samebits.compare.pair import TensorSource
    from samebits.questions.training.records import TrainingOutcome, TrainingStanding
    from samebits.records.capture import Failure
    from samebits.records.ids import CellId
    from samebits.records.tensor import TensorRef

MAX_OF_SIGNAL = 5
"""Items of one signal that a report has."""
NO_VALUES = "its values are not stored"
_WORST: tuple[TrainingOutcome, ...] = ("diverged", "undecided", "rounding", "identical")


class InFloat64(Protocol):
    """What a training in float64 leaves."""

    @property
    def leaks(self) -> tuple[str, ...]:
        """Operations with less than float64 precision."""


class Trained(Protocol):
    """The file of a cell that was trained, in whatever way."""

    @property
    def cell(self) -> CellId:
        """The cell."""

    @property
    def failure(self) -> Failure | None:
        """The exception that ended it."""

    @property
    def reason(self) -> str:
        """Why the model was not trained."""

    @property
    def own(self) -> object | None:
        """What it computed in the variant's dtype."""

    @property
    def float64(self) -> InFloat64 | None:
        """The same in float64."""

    @property
    def no_float64(self) -> str:
        """Why float64 was asked for and failed."""


class OneItem(Protocol):
    """One number or tensor, compared on both sides."""

    @property
    def signal(self) -> str:
        """What it is of."""

    @property
    def outcome(self) -> TrainingOutcome:
        """How it compares."""

    @property
    def reference(self) -> float | None:
        """A number's value in the reference."""

    @property
    def candidate(self) -> float | None:
        """A number's value in the candidate."""

    @property
    def own(self) -> float | None:
        """Largest absolute difference in the variant's dtype."""

    @property
    def float64(self) -> float | None:
        """Its largest difference in float64."""

    @property
    def note(self) -> str:
        """Why it has this outcome."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return the same with other fields."""


class Compared(Protocol):
    """The comparison of a cell with its reference."""

    @property
    def standing(self) -> TrainingStanding:
        """How they compare."""

    @property
    def counts(self) -> Mapping[TrainingOutcome, int]:
        """Outcome -> number of items."""


File = TypeVar("File", bound=Trained)
Item = TypeVar("Item", bound=OneItem)


@dataclass(frozen=True)
class Sides(Generic[File]):
    """The files of a pair, and the values of their tensors."""

    reference: File
    candidate: File
    values: TensorSource
    partly: ClassVar[str] = ""
    """What is noted where float64 removes a part of a difference."""

    @property
    def leaks(self) -> bool:
        """True if a side in float64 had an operation with less precision."""
        return any(f.float64.leaks for f in (self.reference, self.candidate) if f.float64)

    @property
    def no_float64(self) -> str:
        """Why a side has nothing in float64."""
        return self.reference.no_float64 or self.candidate.no_float64 or NO_VALUES

    def unjudged(self) -> tuple[TrainingStanding, str] | None:
        """Return the standing and its reason if a side was not trained; None if both were."""
        reference, candidate = self.reference, self.candidate
        if candidate.failure is not None and reference.own is not None:
            return "failed", candidate.failure.in_words
        if reason := both_raise(reference.failure, candidate.failure):
            return "not compared", reason
        for side in (reference, candidate):
            if side.failure is not None:
                reason = side.failure.in_words
                return "not compared", f"{side.cell.stack}: {reason}"
            if side.own is None:
                return "not compared", f"{side.cell.stack}: {side.reason}"
        return None

    def numbers(self, item: Item, high: Sequence[float | None], one_sided: str) -> Item:
        """Return an item with the outcome of its numbers; ``high`` are the same in float64."""
        reference, candidate = item.reference, item.candidate
        if reference is None and candidate is None:
            return item
        if reference is None or candidate is None:
            return item.model_copy(update=diverged(one_sided))
        before = _gap(reference, candidate)
        if before == 0.0:
            return item
        if high[0] is None or high[1] is None:
            return self._undecided(item, before)
        return self._judged(item, before, _gap(high[0], high[1]))

    def tensors(
        self, item: Item, own: Sequence[TensorRef], high: Sequence[TensorRef | None]
    ) -> Item:
        """Return an item with the outcome of two tensors; ``high`` are the same in float64."""
        if own[0].hash == own[1].hash:
            return item
        before = tensor_distance(own[0], own[1], self.values)
        after = tensor_distance(high[0], high[1], self.values)
        if before is None or after is None:
            return self._undecided(item, before.max_abs if before else None)
        return self._judged(item, _size(before), _size(after))

    def _undecided(self, item: Item, own: float | None) -> Item:
        update = {"outcome": "undecided", "own": own, "note": self.no_float64}
        return item.model_copy(update=update)

    def _judged(self, item: Item, before: float, after: float) -> Item:
        update: dict[str, object] = {"own": before, "float64": after}
        if inf in (before, after):
            return item.model_copy(update=update | diverged(NOT_FINITE))
        outcome, note = judged(before, after), ""
        if self.leaks and outcome != "rounding":
            outcome, note = "undecided", LEAKED
        elif outcome == "undecided":
            note = self.partly
        return item.model_copy(update=update | {"outcome": outcome, "note": note})


def diverged(note: str) -> dict[str, object]:
    """Return what changes in an item that diverged."""
    return {"outcome": "diverged", "note": note}


def _gap(reference: float, candidate: float) -> float:
    """Return the distance of two numbers; infinity if one of them is not finite."""
    if reference == candidate or (isnan(reference) and isnan(candidate)):
        return 0.0
    return abs(reference - candidate) if isfinite(reference) and isfinite(candidate) else inf


def _size(distance: Distance) -> float:
    return distance.max_abs if distance.finite_alike else inf


class Summary(Generic[Item]):
    """The items of a pair, in the order of data flow, summed up."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.counts = dict(Counter(item.outcome for item in items))
        worst = next((outcome for outcome in _WORST if outcome in self.counts), None)
        self.standing: TrainingStanding = worst or "not compared"
        differs = self.standing != "identical"
        deciding = (item for item in items if differs and item.outcome == self.standing)
        self.first: Item | None = next(deciding, None)
        self.items: tuple[Item, ...] = tuple(_shown(items))


def _shown(items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items that are not identical, those of each signal by how bad they are."""
    differing = (item for item in items if item.outcome != "identical")
    for of_signal in grouped(differing, lambda item: item.signal).values():
        yield from sorted(of_signal, key=_badness)[:MAX_OF_SIGNAL]


def _badness(item: OneItem) -> tuple[int, float]:
    rank = _WORST.index(item.outcome) if item.outcome in _WORST else len(_WORST)
    return rank, -(item.float64 or 0.0)


def needs_values(comparison: Compared) -> bool:
    """Return True if float64 is to decide something about a pair."""
    return bool(comparison.counts.get("undecided"))

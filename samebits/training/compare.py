"""Comparison of the training steps of two cells, in the order of data flow.

Equal bytes are equal. What differs is judged by both sides' float64, by the rule of the precision
ladder and without a tolerance: rounding shrinks with the precision, another function does not.
"""

from __future__ import annotations

from collections import Counter
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.standing import Standing, judged
from samebits.ladder.distance import tensor_distance
from samebits.records.training import TrainingComparison, TrainingItem
from samebits.training.chance import moved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.compare.pair import TensorSource
    from samebits.ladder.distance import Distance
    from samebits.records.tensor import TensorRef
    from samebits.records.training import (
        BatchFacts,
        StepFacts,
        TrainingFile,
        TrainingOutcome,
        TrainingSignal,
        TrainingStanding,
    )

MAX_OF_SIGNAL = 5
"""Items of one signal that a report has."""
NO_VALUES = "its values are not stored"
LEAKED = "not every operation runs in float64, so a difference that remains there proves nothing"
_OUTCOMES: dict[Standing, TrainingOutcome] = {
    Standing.HOLDS: "identical",
    Standing.ROUNDING: "rounding",
    Standing.BROKEN: "diverged",
    Standing.UNDECIDED: "undecided",
}
_WORST: tuple[TrainingOutcome, ...] = ("diverged", "undecided", "rounding", "identical")
_UNDECIDED = "float64 removes a part of it: what remains is too large for rounding"

Scalars = tuple["float | None", "float | None"]
Refs = tuple["TensorRef | None", "TensorRef | None"]


class Steps(NamedTuple):
    """The training steps of a pair, the reference first."""

    reference: TrainingFile
    candidate: TrainingFile
    values: TensorSource

    @property
    def own(self) -> tuple[StepFacts, StepFacts] | None:
        """Both steps in the variant's dtype; None if a side has none."""
        a, b = self.reference.own, self.candidate.own
        return None if a is None or b is None else (a, b)

    @property
    def high(self) -> tuple[StepFacts, StepFacts] | None:
        """Both steps in float64; None if a side has none."""
        a, b = self.reference.float64, self.candidate.float64
        return None if a is None or b is None else (a, b)

    @property
    def leaks(self) -> bool:
        """True if a step in float64 had an operation with less precision."""
        return any(step.leaks for step in self.high or ())

    @property
    def no_float64(self) -> str:
        """Why a side has no step in float64; '' if it has."""
        return self.reference.no_float64 or self.candidate.no_float64


def compared(
    reference: TrainingFile, candidate: TrainingFile, values: TensorSource
) -> TrainingComparison:
    """Return the comparison of two training steps, without what the forward explains."""
    stack = reference.cell.stack
    steps = Steps(reference, candidate, values)
    if candidate.failure is not None and reference.own is not None:
        failure = candidate.failure
        return TrainingComparison(
            reference=stack, standing="failed", reason=f"{failure.type}: {failure.in_short}"
        )
    if reason := _not_comparable(reference, candidate):
        return TrainingComparison(reference=stack, standing="not compared", reason=reason)
    items = tuple(_items(steps))
    standing = _standing(items)
    first = next((item for item in items if item.outcome == standing), None)
    counts = Counter(item.outcome for item in items)
    return TrainingComparison(
        reference=stack,
        standing=standing,
        first=first if standing != "identical" else None,
        items=tuple(_shown(items)),
        counts=dict(counts),
        draws=moved(reference, candidate),
        takes_items=_takes_items(reference, candidate),
    )


def _takes_items(reference: TrainingFile, candidate: TrainingFile) -> tuple[bool, bool] | None:
    sides = (reference.takes_items, candidate.takes_items)
    if sides[0] is None or sides[1] is None or sides[0] == sides[1]:
        return None
    return sides[0], sides[1]


def needs_values(comparison: TrainingComparison) -> bool:
    """Return True if float64 is to decide something about a pair."""
    return bool(comparison.counts.get("undecided"))


def _not_comparable(reference: TrainingFile, candidate: TrainingFile) -> str:
    for side in (reference, candidate):
        if side.failure is not None:
            return f"{side.cell.stack}: {side.failure.type}: {side.failure.in_short}"
        if side.own is None:
            return f"{side.cell.stack}: {side.reason}"
    if (reference.asked_of is None) != (candidate.asked_of is None):
        return "one side trained a made model, the other the model itself"
    if reference.asked_of is not None and reference.weights != candidate.weights:
        return "each release makes its own small model, and theirs hold other weights"
    return ""


def _standing(items: Iterable[TrainingItem]) -> TrainingStanding:
    outcomes = {item.outcome for item in items}
    worst = next((outcome for outcome in _WORST if outcome in outcomes), None)
    return worst or "not compared"


def _shown(items: Iterable[TrainingItem]) -> Iterator[TrainingItem]:
    """Yield the items that are not identical, those of each signal by how bad they are."""
    by_signal: dict[TrainingSignal, list[TrainingItem]] = {}
    for item in items:
        if item.outcome != "identical":
            by_signal.setdefault(item.signal, []).append(item)
    for of_signal in by_signal.values():
        yield from sorted(of_signal, key=_badness)[:MAX_OF_SIGNAL]


def _badness(item: TrainingItem) -> tuple[int, float]:
    rank = _WORST.index(item.outcome) if item.outcome in _WORST else len(_WORST)
    return rank, -(item.float64 or 0.0)


def _items(steps: Steps) -> Iterator[TrainingItem]:
    assert steps.own is not None
    reference, candidate = steps.own
    for name in dict.fromkeys((*reference.batches, *candidate.batches)):
        yield from _of_batch(steps, name)
    yield from _of_gradients(steps)
    high = steps.high
    norms = (reference.norm, candidate.norm)
    yield _scalar(steps, "norm", norms, (high[0].norm, high[1].norm) if high else (None, None))
    yield from _of_norms(steps)
    behind = (reference.behind, candidate.behind)
    exact = (high[0].behind, high[1].behind) if high else (None, None)
    yield _scalar(steps, "loss behind an update", behind, exact)


def _of_norms(steps: Steps) -> Iterator[TrainingItem]:
    """Yield the norms of batches that both sides have with a backward, such as the router's."""
    assert steps.own is not None
    for name in steps.own[0].batches:
        sides = [side.batches.get(name) for side in steps.own]
        exact = [side.batches.get(name) for side in steps.high or ()]
        norms = tuple(batch.norm if batch is not None else None for batch in sides)
        if None not in norms:
            high = tuple(batch.norm if batch is not None else None for batch in exact)
            both = (high[0], high[1]) if high else (None, None)
            yield _scalar(steps, "norm", (norms[0], norms[1]), both, name)


def _of_batch(steps: Steps, name: str) -> Iterator[TrainingItem]:
    assert steps.own is not None
    reference, candidate = (side.batches.get(name) for side in steps.own)
    if reference is None or candidate is None:
        stack = (steps.reference if reference is None else steps.candidate).cell.stack
        note = f"{stack} takes no such batch"
        yield TrainingItem(signal="loss", batch=name, outcome="not compared", note=note)
        return
    if reference.refused or candidate.refused:
        yield _refused(name, reference, candidate)
        return
    high = tuple(side.batches.get(name) for side in steps.high) if steps.high else (None, None)
    refs = (reference.logits, candidate.logits)
    exact = (high[0].logits if high[0] else None, high[1].logits if high[1] else None)
    yield _tensor(
        steps, TrainingItem(signal="logits", batch=name, outcome="identical"), refs, exact
    )
    losses = (high[0].loss if high[0] else None, high[1].loss if high[1] else None)
    item = _scalar(steps, "loss", (reference.loss, candidate.loss), losses, name)
    if reference.formula and candidate.formula and reference.formula != candidate.formula:
        formulas = (reference.formula, candidate.formula)
        item = item.model_copy(update={"outcome": "diverged", "formulas": formulas})
    yield item
    for other in dict.fromkeys((*reference.others, *candidate.others)):
        values = (reference.others.get(other), candidate.others.get(other))
        exact_values = (
            high[0].others.get(other) if high[0] else None,
            high[1].others.get(other) if high[1] else None,
        )
        yield _scalar(steps, "other losses", values, exact_values, name, other)


def _refused(name: str, reference: BatchFacts, candidate: BatchFacts) -> TrainingItem:
    outcome: TrainingOutcome = "not compared"
    if candidate.refused and not reference.refused:
        outcome = "diverged"
    note = candidate.refused or reference.refused
    return TrainingItem(signal="loss", batch=name, outcome=outcome, note=note)


def _of_gradients(steps: Steps) -> Iterator[TrainingItem]:
    assert steps.own is not None
    reference, candidate = steps.own
    uncertain = {*steps.reference.uncertain, *steps.candidate.uncertain}
    alike = _same_bytes_in_any_order(reference, candidate, uncertain)
    for name in dict.fromkeys((*reference.gradients, *candidate.gradients)):
        refs = (reference.gradients.get(name), candidate.gradients.get(name))
        item = TrainingItem(signal="gradients", tensor=name, outcome="identical")
        if refs[0] is None or refs[1] is None:
            yield item.model_copy(update=_one_sided(steps, name, in_candidate=refs[0] is None))
            continue
        held = [side.carriers.get(name, 1) for side in steps.own]
        if held[0] != held[1]:
            note = f"held by {held[0]} parameters in the reference and by {held[1]} here, each updated for itself"
            yield item.model_copy(update={"outcome": "diverged", "note": note})
        elif name in uncertain and refs[0] != refs[1]:
            note = "several tensors hold the same bytes: it is not known which of them this one is"
            update = {} if alike else {"outcome": "not compared", "note": note}
            yield item.model_copy(update=update)
        else:
            exact = tuple(side.gradients.get(name) for side in steps.high or ()) or (None, None)
            yield _tensor(steps, item, refs, (exact[0], exact[1]))


def _same_bytes_in_any_order(reference: StepFacts, candidate: StepFacts, names: set[str]) -> bool:
    hashes = [
        Counter(ref.hash for name, ref in side.gradients.items() if name in names)
        for side in (reference, candidate)
    ]
    return hashes[0] == hashes[1]


def _one_sided(steps: Steps, name: str, *, in_candidate: bool) -> dict[str, object]:
    """Return what is said of a gradient that one side has."""
    assert steps.own is not None
    side = steps.own[0] if in_candidate else steps.own[1]
    stack = (steps.reference if in_candidate else steps.candidate).cell.stack
    if name in side.without:
        return {"outcome": "diverged", "note": f"it gets no gradient in {stack}"}
    note = f"{stack} holds it in a layout that is not traced to the checkpoint"
    return {"outcome": "not compared", "note": note}


def _scalar(
    steps: Steps,
    signal: TrainingSignal,
    own: Scalars,
    high: Scalars,
    batch: str = "",
    tensor: str = "",
) -> TrainingItem:
    reference, candidate = own
    item = TrainingItem(
        signal=signal,
        batch=batch,
        tensor=tensor,
        outcome="identical",
        reference=reference,
        candidate=candidate,
    )
    if reference is None or candidate is None:
        if reference is None and candidate is None:
            return item
        note = "only one side returns it"
        return item.model_copy(update={"outcome": "diverged", "note": note})
    if reference == candidate or (isnan(reference) and isnan(candidate)):
        return item
    before = _gap(reference, candidate)
    if high[0] is None or high[1] is None:
        note = steps.no_float64 or NO_VALUES
        return item.model_copy(update={"outcome": "undecided", "own": before, "note": note})
    return _judged(steps, item, before, _gap(high[0], high[1]))


def _gap(reference: float, candidate: float) -> float:
    """Return the distance of two numbers; infinity if one of them is not finite."""
    if reference == candidate or (isnan(reference) and isnan(candidate)):
        return 0.0
    return abs(reference - candidate) if isfinite(reference) and isfinite(candidate) else inf


def _tensor(steps: Steps, item: TrainingItem, own: Refs, high: Refs) -> TrainingItem:
    reference, candidate = own
    if reference is None and candidate is None:
        return item.model_copy(update={"outcome": "not compared", "note": "no side returns it"})
    if reference is None or candidate is None:
        return item.model_copy(update={"outcome": "diverged", "note": "only one side returns it"})
    if reference.hash == candidate.hash:
        return item
    if reference.shape != candidate.shape:
        note = f"shape {list(reference.shape)} became {list(candidate.shape)}"
        return item.model_copy(update={"outcome": "diverged", "note": note})
    before = tensor_distance(reference, candidate, steps.values)
    after = tensor_distance(*high, steps.values)
    if before is None or after is None:
        note = steps.no_float64 or NO_VALUES
        own_size = before.max_abs if before else None
        return item.model_copy(update={"outcome": "undecided", "own": own_size, "note": note})
    return _judged(steps, item, _size(before), _size(after))


def _size(distance: Distance) -> float:
    return distance.max_abs if distance.finite_alike else inf


def _judged(steps: Steps, item: TrainingItem, before: float, after: float) -> TrainingItem:
    update: dict[str, object] = {"own": before, "float64": after}
    if inf in (before, after):
        note = "one side is not finite where the other is"
        return item.model_copy(update=update | {"outcome": "diverged", "note": note})
    outcome = _OUTCOMES[judged(before, after)]
    if before == after == 0.0:
        outcome = "rounding"  # signs of zeros
    note = ""
    if steps.leaks and outcome in ("diverged", "undecided"):
        outcome, note = "undecided", LEAKED
    elif outcome == "undecided":
        note = _UNDECIDED
    return item.model_copy(update=update | {"outcome": outcome, "note": note})

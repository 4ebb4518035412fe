"""Comparison of the training steps of two cells, in the order of data flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from samebits.compare.pair import TensorSource
from samebits.compare.standing import PARTLY
from samebits.questions.training.judge import Sides, Summary, diverged
from samebits.questions.training.records import (
    BatchFacts,
    StepFacts,
    TrainingComparison,
    TrainingFile,
    TrainingItem,
    TrainingOutcome,
    TrainingSignal,
    TrainingStanding,
)
from samebits.records.tensor import TensorRef

Scalars = tuple["float | None", "float | None"]
Refs = tuple["TensorRef | None", "TensorRef | None"]


class Steps(Sides[TrainingFile]):
    """The training steps of a pair, the reference first."""

    partly: ClassVar[str] = PARTLY

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


def compared(
    reference: TrainingFile, candidate: TrainingFile, values: TensorSource
) -> TrainingComparison:
    """Return the comparison of two training steps, without what the forward explains."""
    stack = reference.cell.stack
    steps = Steps(reference, candidate, values)
    if unjudged := steps.unjudged() or _made_otherwise(reference, candidate):
        return TrainingComparison(reference=stack, standing=unjudged[0], reason=unjudged[1])
    summary = Summary(tuple(_items(steps)))
    return TrainingComparison(
        reference=stack,
        standing=summary.standing,
        first=summary.first,
        items=summary.items,
        counts=summary.counts,
        takes_items=_takes_items(reference, candidate),
        linear_in=_linear_in(reference, candidate),
    )


def _linear_in(reference: TrainingFile, candidate: TrainingFile) -> dict[str, tuple[str, ...]]:
    """Return the tensors that are of a linear layer in one release, and of no such layer in the other."""
    sides = (reference, candidate)
    tensors = [{*side.own.gradients, *side.own.without} for side in sides if side.own is not None]
    sure = set.intersection(*tensors) - {*reference.uncertain, *candidate.uncertain}
    alone = (
        (side.cell.stack, tuple(sorted((sure & {*side.linear}) - {*opposite.linear})))
        for side, opposite in (sides, sides[::-1])
    )
    return {stack: names for stack, names in alone if names}


def _takes_items(reference: TrainingFile, candidate: TrainingFile) -> tuple[bool, bool] | None:
    sides = (reference.takes_items, candidate.takes_items)
    if sides[0] is None or sides[1] is None or sides[0] == sides[1]:
        return None
    return sides[0], sides[1]


def _made_otherwise(
    reference: TrainingFile, candidate: TrainingFile
) -> tuple[TrainingStanding, str] | None:
    if (reference.asked_of is None) != (candidate.asked_of is None):
        return (
            "not compared",
            "one side trained a tiny model of the same config, the other the model itself",
        )
    if reference.asked_of is not None and reference.weights != candidate.weights:
        reason = "each release makes its own tiny model, and their weights differ"
        return "not compared", reason
    return None


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
        carriers = [side.carriers.get(name, 1) for side in steps.own]
        if carriers[0] != carriers[1]:
            note = f"held by {carriers[0]} parameters in the reference and by {carriers[1]} in the candidate, each updated for itself"
            yield item.model_copy(update=diverged(note))
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
    """Return the fields of an item whose gradient only one side has."""
    assert steps.own is not None
    side = steps.own[0] if in_candidate else steps.own[1]
    stack = (steps.reference if in_candidate else steps.candidate).cell.stack
    if name in side.frozen:
        note = f"its requires_grad is False in {stack}, and True in the other release"
        return diverged(note) | {"frozen_in": stack}
    if name in side.without:
        return diverged(f"it gets no gradient in {stack}")
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
    return steps.numbers(item, high, "only one side returns it")


def _tensor(steps: Steps, item: TrainingItem, own: Refs, high: Refs) -> TrainingItem:
    reference, candidate = own
    if reference is None and candidate is None:
        return item.model_copy(update={"outcome": "not compared", "note": "no side returns it"})
    if reference is None or candidate is None:
        return item.model_copy(update=diverged("only one side returns it"))
    if reference.hash != candidate.hash and reference.shape != candidate.shape:
        note = f"shape {list(reference.shape)} became {list(candidate.shape)}"
        return item.model_copy(update=diverged(note))
    return steps.tensors(item, (reference, candidate), high)

"""SB84x: rules for one training step: loss, gradients, and ways to train that must agree."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.findings.case import Case, seen_with
from samebits.findings.rule import Check, Rule, Sighting
from samebits.questions.training.judge import OneItem
from samebits.questions.training.records import (
    TrainingComparison,
    TrainingItem,
    TrainingRelation,
    TrainingRelationName,
    TrainingSignal,
    TrainingStanding,
    step_in,
)
from samebits.questions.training.step_trace import StepOrigin, StepSide
from samebits.text.numbers import plural

_MEANS = {
    True: "Trainer passes num_items_in_batch, of all accumulated micro-batches, to forward",
    False: "forward takes no num_items_in_batch, and Trainer averages the losses of micro-batches",
}
_PACKED = "packed"
"""Name of the batch whose row holds two sequences."""
_HIGHER = 1.5
"""How many times larger a loss must be for a reader to call it higher."""
_LOSSES: tuple[TrainingSignal, ...] = ("loss", "other losses")
_GRADIENTS: tuple[TrainingSignal, ...] = ("gradients", "norm")


def _comparison(case: Case, *standings: TrainingStanding) -> TrainingComparison | None:
    """Return the comparison of a step if it has one of these standings."""
    step = step_in(case)
    comparison = step.comparison if step is not None else None
    return comparison if comparison is not None and comparison.standing in standings else None


def _relations(case: Case) -> tuple[TrainingRelation, ...]:
    """Return the relations between ways to train that were tried in a cell."""
    step = step_in(case)
    tried = step.relations if step is not None else None
    return tried.relations if tried is not None else ()


def _other_loss(case: Case) -> Iterator[Sighting]:
    """Find a loss that is another function of the same logits.

    A loss that one side does not compute is no consequence of other logits.
    """
    comparison = _comparison(case, "diverged", "follows")
    if comparison is None:
        return
    begins_before = {i.batch for i in comparison.items if i.signal == "logits" and _is(i)}
    losses = [
        item
        for item in comparison.items
        if item.signal in _LOSSES
        and _is(item)
        and (
            _is_missing(item)
            or (
                comparison.standing == "diverged"
                and (item.formulas or item.batch not in begins_before)
            )
        )
    ]
    if losses:
        lines = (*map(item_line, losses), *_begins(comparison))
        yield Sighting(_place(losses[0]), _evidence(case, lines))


def _other_logits(case: Case) -> Iterator[Sighting]:
    """Find logits of a step that differ where the model's own forward agrees.

    Beside another formula of the loss, logits may follow from a forward that differs. A release that keeps packed
    sequences apart is right where the reference mixes them, which SB903 says of the reference.
    """
    comparison = _comparison(case, "diverged")
    if comparison is None or any(item.formulas for item in comparison.items):
        return
    logits = [item for item in comparison.items if item.signal == "logits" and _is(item)]
    if {item.batch for item in logits} == {_PACKED} and _keeps_packed_apart(case):
        return
    if logits:
        begins = _begins(comparison) if comparison.first in logits else ()
        yield Sighting(_place(logits[0]), _evidence(case, (*map(item_line, logits), *begins)))


def _keeps_packed_apart(case: Case) -> bool:
    """Return True if packed sequences learn what they learn as rows of their own."""
    return any(r.relation == "packed = padded" and not r.broken for r in _relations(case))


def _other_gradients(case: Case) -> Iterator[Sighting]:
    """Find gradients that differ where logits and losses agree, but for tensors that are frozen."""
    comparison = _comparison(case, "diverged")
    if comparison is None or comparison.first is None:
        return
    gradients = [
        i for i in comparison.items if i.signal in _GRADIENTS and _is(i) and not i.frozen_in
    ]
    if all(i.signal == "norm" for i in gradients) and _frozen_items(comparison):
        return  # the norm of other gradients
    if gradients and comparison.first.signal in _GRADIENTS:
        lines = (*map(item_line, gradients), *_begins(comparison))
        yield Sighting(_place(gradients[0]), _evidence(case, lines))


def _frozen_items(comparison: TrainingComparison) -> list[TrainingItem]:
    return [item for item in comparison.items if item.frozen_in and _is(item)]


def _frozen(case: Case) -> Iterator[Sighting]:
    """Find tensors that one release trains and the other one does not."""
    comparison = _comparison(case, "diverged")
    frozen = _frozen_items(comparison) if comparison is not None else []
    if frozen:
        yield Sighting(_place(frozen[0]), _evidence(case, tuple(map(item_line, frozen))))


def _unwritten(case: Case) -> Iterator[Sighting]:
    """Find a loss that is far higher where the forward differs and memory was never written."""
    comparison = _comparison(case, "follows")
    if comparison is None:
        return
    unwritten = [n for n, p in case.tensors() if p.source in ("unwritten", "partly written")]
    higher = [i for i in comparison.items if i.signal == "loss" and _is_higher(i)]
    if unwritten and higher:
        names = ", ".join(unwritten[:3])
        lines = (*map(item_line, higher), f"never written by the load: {names}")
        yield Sighting(unwritten[0], _evidence(case, lines))


def _other_accumulation(case: Case) -> Iterator[Sighting]:
    """Find a model to which Trainer passes num_items_in_batch in one of two releases only."""
    report = step_in(case)
    comparison = report.comparison if report is not None else None
    if comparison is None or comparison.takes_items is None:
        return
    stacks = (comparison.reference, case.capture.cell.stack)
    means = [_MEANS[takes] for takes in comparison.takes_items]
    lines = tuple(f"{stack}: {mean}" for stack, mean in zip(stacks, means, strict=True))
    yield Sighting("num_items_in_batch", _evidence(case, lines))


def _adapted(case: Case) -> Iterator[Sighting]:
    """Find tensors that adapters of all linear layers adapt in one release only."""
    report = step_in(case)
    comparison = report.comparison if report is not None else None
    for stack, tensors in (comparison.linear_in if comparison is not None else {}).items():
        line = f"linear in {stack} alone: {plural(len(tensors), 'tensor')}, such as {tensors[0]}"
        yield Sighting(tensors[0], _evidence(case, (line,)))


def _is(item: TrainingItem) -> bool:
    return item.outcome == "diverged"


def _is_missing(item: TrainingItem) -> bool:
    """Return True if only one side computes a loss: the other raises, or does not return it."""
    return item.signal in _LOSSES and None in (item.reference, item.candidate)


def _is_higher(item: TrainingItem) -> bool:
    if item.reference is None or item.candidate is None:
        return False
    # a loss that is no number is as bad as one that is far higher
    return not item.candidate <= item.reference * _HIGHER


_OF_DECODING: TrainingRelationName = "logprobs of training = logprobs of decoding"
_LOSES_CACHE = frozenset({"SB713"})
"""The defect with which generate() computes every token without the text before it, in training code too."""


def _broken(*names: TrainingRelationName) -> Check:
    """Return a check for relations between ways to train that are broken in float64, too."""

    def check(case: Case) -> Iterator[Sighting]:
        broken = [r for r in _relations(case) if r.broken and r.relation in names]
        if broken:
            lines = tuple(relation_line(relation) for relation in broken)
            of_decoding = all(relation.relation == _OF_DECODING for relation in broken)
            follows = _LOSES_CACHE if of_decoding else frozenset()
            yield Sighting(broken[0].relation, _evidence(case, lines), follows=follows)

    return check


def _begins(comparison: TrainingComparison) -> tuple[str, ...]:
    """Return where a difference begins and what restores the reference's step, where known."""
    origin, graft = comparison.origin, comparison.graft
    lines = () if origin is None else (origin_line(origin),)
    return lines if graft is None or not graft.smallest else (*lines, graft.headline)


def _place(item: TrainingItem) -> str:
    where = " of ".join(filter(None, (item.tensor, item.batch)))
    return f"{item.signal}: {where}" if where else item.signal


def item_line(item: TrainingItem) -> str:
    """Return one item of a comparison in one line."""
    figures = figures_of(item, " → ".join(item.formulas))
    return f"{_place(item)}: {figures}" if figures else _place(item)


def figures_of(item: OneItem, formulas: str = "") -> str:
    """Return what an item has of numbers, formulas, distances and its note; '' if it has none."""
    parts = []
    if item.reference is not None and item.candidate is not None:
        parts.append(f"{item.reference:.6g} → {item.candidate:.6g}")
    parts.append(formulas)
    if item.own is not None:
        exact = "" if item.float64 is None else f", in float64 {item.float64:.2g}"
        parts.append(f"apart by {item.own:.2g}{exact}")
    return "; ".join(filter(None, (*parts, item.note)))


def origin_line(origin: StepOrigin) -> str:
    """Return the first operation of a step that differs in one line."""
    side, other = origin.side, origin.counterpart
    line = f"it begins in the {origin.part} with {_operation(side)}"
    if side.tensor:
        return f"{line}, which takes {side.tensor}: the other side has no such values"
    if origin.only_in == "reference":
        return f"{line}, which only {side.stack} computes"
    if other is None:
        return f"{line}: the other side has its inputs and not its output"
    return f"{line}; in {other.stack} the same numbers go into {_operation(other)}"


def _operation(side: StepSide) -> str:
    """Return an operation with the module and the line of the forward operation behind it."""
    node = f" of {side.node}" if side.node else ""
    behind = f" behind {side.forward}" if side.forward else ""
    module = f" in {side.module}" if side.module else ""
    place = f" ({side.function}, {side.source})" if side.function else ""
    return f"{side.op}{node}{behind}{module}{place}"


def relation_line(relation: TrainingRelation) -> str:
    """Return one relation that does not hold in one line."""
    if relation.missing:
        n = plural(len(relation.missing), "tensor")
        return f"{relation.relation}: {n} only one way computes, such as {relation.missing[0]}"
    own = relation.distance.max_abs if relation.distance is not None else 0.0
    exact = "" if relation.promoted is None else f", in float64 {relation.promoted.max_abs:.2g}"
    return f"{relation.relation}: {relation.what} apart by {own:.2g}{exact}"


def _evidence(case: Case, lines: tuple[str, ...]) -> tuple[str, ...]:
    step = step_in(case)
    return (*lines, *seen_with(step.asked_of if step is not None else None))


RULES: tuple[Rule, ...] = (
    Rule("SB840", _other_logits),
    Rule("SB841", _other_loss),
    Rule("SB842", _other_gradients),
    Rule("SB843", _broken("rows accumulated = one batch")),
    Rule(
        "SB844",
        _broken(
            "gradient checkpointing = without",
            "gradient checkpointing, reentrant = without",
            "gradient checkpointing, reentrant, only layers learn = without",
            "gradient checkpointing, reentrant, only layers learn = without, with images",
            "gradient checkpointing, only projections learn = without",
            "gradient checkpointing with dropout = without",
        ),
    ),
    Rule(
        "SB845",
        _broken("train() without dropout = eval()", _OF_DECODING),
    ),
    Rule(
        "SB846",
        _broken(
            "packed = padded",
            "decoder ids by collators = by forward",
            "frozen layers leave other gradients",
            "only projections learn = all learn",
            "router loss by config = by argument",
            "eager backward = sdpa backward",
        ),
    ),
    Rule("SB847", _unwritten),
    Rule("SB848", _other_accumulation),
    Rule("SB849", _frozen),
    Rule("SB870", _broken("ids of padding have no effect")),
    Rule("SB886", _adapted),
    Rule("SB871", _broken("packed = padded, with images")),
)

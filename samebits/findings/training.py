"""SB84x: rules for one training step: loss, gradients, and ways to train that must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.case import seen_with
from samebits.findings.rule import Rule, Sighting
from samebits.records.finding import RuleText
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.step_trace import StepOrigin, StepSide
    from samebits.records.training import (
        TrainingComparison,
        TrainingItem,
        TrainingRelation,
        TrainingRelationName,
        TrainingSignal,
    )

    Check = Callable[[Case], Iterator[Sighting]]

_MEANS = {
    True: "Trainer passes num_items_in_batch, of all accumulated micro-batches, to forward",
    False: "forward takes no num_items_in_batch, and Trainer averages the losses of micro-batches",
}
_HIGHER = 1.5
"""How many times larger a loss must be for a reader to call it higher."""
_ACCUMULATION = "https://github.com/huggingface/transformers/pull/34191"
_LOSSES: tuple[TrainingSignal, ...] = ("loss", "other losses")
_GRADIENTS: tuple[TrainingSignal, ...] = ("gradients", "norm")
_TRIED = "Compared in every release in which a model is trained for one step."


def _diverged(case: Case) -> TrainingComparison | None:
    """Return the comparison of a step that diverged by itself, and not with its forward."""
    comparison = case.training.comparison if case.training is not None else None
    return comparison if comparison is not None and comparison.standing == "diverged" else None


def _other_loss(case: Case) -> Iterator[Sighting]:
    """Find a loss that is another function of the same logits.

    A loss that one side does not compute is no consequence of other logits.
    """
    report = case.training
    comparison = report.comparison if report is not None else None
    if comparison is None or comparison.standing not in ("diverged", "follows"):
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


def _other_gradients(case: Case) -> Iterator[Sighting]:
    """Find gradients that differ where logits and losses agree."""
    comparison = _diverged(case)
    if comparison is None or comparison.first is None:
        return
    gradients = [i for i in comparison.items if i.signal in _GRADIENTS and _is(i)]
    if gradients and comparison.first.signal in _GRADIENTS:
        lines = (*map(item_line, gradients), *_begins(comparison))
        yield Sighting(_place(gradients[0]), _evidence(case, lines))


def _unwritten(case: Case) -> Iterator[Sighting]:
    """Find a loss that is far higher where the forward differs and memory was never written."""
    report = case.training
    comparison = report.comparison if report is not None else None
    if comparison is None or comparison.standing != "follows":
        return
    unwritten = [n for n, p in case.tensors() if p.source in ("unwritten", "partly written")]
    higher = [i for i in comparison.items if i.signal == "loss" and _is_higher(i)]
    if unwritten and higher:
        names = ", ".join(unwritten[:3])
        lines = (*map(item_line, higher), f"never written by the load: {names}")
        yield Sighting(unwritten[0], _evidence(case, lines))


def _other_accumulation(case: Case) -> Iterator[Sighting]:
    """Find a model to which Trainer passes num_items_in_batch in one of two releases only."""
    report = case.training
    comparison = report.comparison if report is not None else None
    if comparison is None or comparison.takes_items is None:
        return
    stacks = (comparison.reference, case.capture.cell.stack)
    means = [_MEANS[takes] for takes in comparison.takes_items]
    lines = tuple(f"{stack}: {mean}" for stack, mean in zip(stacks, means, strict=True))
    yield Sighting("num_items_in_batch", _evidence(case, lines))


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


def _broken(*names: TrainingRelationName) -> Check:
    """Return a check for relations between ways to train that are broken in float64, too."""

    def check(case: Case) -> Iterator[Sighting]:
        report = case.training
        relations = report.relations if report is not None else None
        broken = [
            relation
            for relation in (relations.relations if relations is not None else ())
            if relation.broken and relation.relation in names
        ]
        if broken:
            lines = tuple(relation_line(relation) for relation in broken)
            yield Sighting(broken[0].relation, _evidence(case, lines))

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
    parts = []
    if item.reference is not None and item.candidate is not None:
        parts.append(f"{item.reference:.6g} → {item.candidate:.6g}")
    if item.formulas:
        parts.append(" → ".join(item.formulas))
    if item.own is not None:
        exact = "" if item.float64 is None else f", in float64 {item.float64:.2g}"
        parts.append(f"apart by {item.own:.2g}{exact}")
    if item.note:
        parts.append(item.note)
    return f"{_place(item)}: {'; '.join(parts)}" if parts else _place(item)


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
    made = case.training.asked_of if case.training is not None else None
    return (*lines, *seen_with(made))


RULES: tuple[Rule, ...] = (
    Rule(
        RuleText(
            code="SB841",
            name="the loss is another function of the same logits",
            kind="silent",
            looks_for=(
                "A training forward whose logits agree with the reference's, or differ by rounding, "
                "and whose loss differs in float64, too; or a loss that another formula gives: "
                "another divisor, labels shifted once more or once less; or a loss that one side "
                "refuses to compute or does not return, also where the logits differ"
            ),
            cause=(
                "The loss moved from the models' code to a shared function, which divides by "
                "num_items_in_batch, shifts the labels, and leaves out -100 in its own way. A model "
                "with a loss of its own, or a release with another default, computes another number."
            ),
            remedy=(
                "Compute the loss from the logits in your training code, or take the model's "
                "`loss_function` in every release. The evidence names both formulas, where known."
            ),
            releases=_TRIED,
            references=(_ACCUMULATION, "https://github.com/huggingface/transformers/pull/35438"),
        ),
        _other_loss,
    ),
    Rule(
        RuleText(
            code="SB842",
            name="gradients differ where logits and loss agree",
            kind="silent",
            looks_for=(
                "A gradient that differs in float64, too, or that only one side computes, in "
                "checkpoint space, where logits and losses agree or differ by rounding; and tensors "
                "of the checkpoint that two parameters hold on one side only; and the norm of the "
                "gradients with a router's loss."
            ),
            cause=(
                "A part of the forward was detached or computed without a graph, a tied parameter "
                "became two, or a function has another backward."
            ),
            remedy=(
                "Compare the forward's code of the two releases around the tensor that is named. "
                "After a lost tie call `model.tie_weights()` behind the load."
            ),
            releases=_TRIED,
        ),
        _other_gradients,
    ),
    Rule(
        RuleText(
            code="SB843",
            name="accumulated micro-batches teach something else than one batch",
            kind="silent",
            looks_for=(
                "Four micro-batches of one row, whose losses get the same num_items_in_batch, "
                "against one batch of four rows: the loss, or a gradient, differs in float64, too."
            ),
            cause=(
                "The model takes num_items_in_batch and does not divide by it, or averages each "
                "micro-batch before. Rows with few labels then weigh more than those with many."
            ),
            remedy=(
                "Pass num_items_in_batch on to the loss function, or set "
                "`accepts_loss_kwargs = False` on the class, so that Trainer divides itself."
            ),
            releases=_TRIED,
            references=(_ACCUMULATION, "https://github.com/huggingface/transformers/issues/37766"),
        ),
        _broken("rows accumulated = one batch"),
    ),
    Rule(
        RuleText(
            code="SB844",
            name="gradient checkpointing changes the gradients",
            kind="silent",
            looks_for=(
                "The same step with gradient_checkpointing_enable() and without it, dropout off, and "
                "dropout on with one seed: the loss, or a gradient, differs in float64, too."
            ),
            cause=(
                "A checkpointed block runs twice, and does not compute the same the second time: it "
                "draws numbers, counts its calls, or uses a cache that the first time filled."
            ),
            remedy=(
                "Make the block a function of its arguments. With use_reentrant=True call "
                "`model.enable_input_require_grads()`, as the first block has no other graph."
            ),
            releases=_TRIED,
        ),
        _broken(
            "gradient checkpointing = without",
            "gradient checkpointing, reentrant = without",
            "gradient checkpointing with dropout = without",
        ),
    ),
    Rule(
        RuleText(
            code="SB845",
            name="a training forward computes something else than evaluation or decoding",
            kind="silent",
            looks_for=(
                "Logits of train() with every dropout at zero against those of eval(), and the log "
                "probabilities of tokens in a training forward against those of generate()."
            ),
            cause="The code takes another branch if self.training is set, or if there is a cache.",
            remedy=(
                "Score and train with the same branch. On-policy methods compare log probabilities "
                "of both, and take the difference for a change of the policy."
            ),
            releases=_TRIED,
        ),
        _broken("train() without dropout = eval()", "logprobs of training = logprobs of decoding"),
    ),
    Rule(
        RuleText(
            code="SB846",
            name="two ways to train that must agree do not",
            kind="silent",
            looks_for=(
                "Packed rows against padded ones, where the second sequence does not see the first; "
                "a step with the first half of the parameters frozen, or with an adapter on a linear "
                "layer, against a whole one; the router's loss asked for by the config against the "
                "argument; the backward of eager attention against that of sdpa; autocast against "
                "bfloat16 weights; in float64, too."
            ),
            cause=(
                "Labels or positions are counted over a whole packed row, a frozen parameter cuts "
                "the graph of others, a weight is used beside its layer's forward, a switch of the "
                "config is not read, one of the two attentions has another mask, or code looks at "
                "autocast."
            ),
            remedy="Train in the way that agrees with the reference, until the release is repaired.",
            releases=_TRIED,
        ),
        _broken(
            "packed = padded",
            "frozen layers leave other gradients",
            "an adapter leaves other gradients",
            "router loss by config = by argument",
            "eager backward = sdpa backward",
            "bfloat16 by autocast = by weights",
        ),
    ),
    Rule(
        RuleText(
            code="SB847",
            name="memory that was never written makes the loss higher",
            kind="silent",
            looks_for=(
                "A loss more than one and a half times the reference's, in a cell whose forward "
                "differs and whose load left a tensor unwritten."
            ),
            cause=(
                "5.x makes a model on the meta device, and fills buffers only where the class says "
                "how. The model then trains, and its loss starts several times higher."
            ),
            remedy="Repair the load first: SB301 says how. Training on would unlearn the defect.",
            releases="4.57 → 5.0",
            references=("https://github.com/unslothai/unsloth/pull/4112",),
        ),
        _unwritten,
    ),
    Rule(
        RuleText(
            code="SB848",
            name="accumulated steps are averaged in another way than in the reference",
            kind="silent",
            scope="release",
            looks_for=(
                "A forward that takes num_items_in_batch, by Trainer's own rule, in one of two "
                "releases only."
            ),
            cause=(
                "Until 4.46 Trainer averaged the losses of micro-batches, so that rows with few "
                "labels weighed more. Since then it passes the number of labels of all of them to "
                "models that take it, and they came one by one, release by release."
            ),
            remedy=(
                "Compare runs without accumulation, or pass `compute_loss_func` to Trainer in both "
                "releases. SB843 says whether a model that takes the number also divides by it."
            ),
            releases="4.45 → 4.46, and single models in later releases",
            references=(_ACCUMULATION, "https://github.com/huggingface/transformers/pull/34283"),
        ),
        _other_accumulation,
    ),
)

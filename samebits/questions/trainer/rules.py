"""SB85x, SB888 to SB893: rules for transformers' own Trainer, and for loads that need its accelerate."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.describe import some
from samebits.findings.case import Case
from samebits.findings.rule import Check, Rule, Sighting
from samebits.questions.edits.rules import breaking
from samebits.questions.trainer.evaluation import FED, OUTCOME, RETURNS
from samebits.questions.trainer.records import (
    TRAINER,
    TrainerChange,
    TrainerComparison,
    TrainerItem,
    TrainerRunName,
    TrainerSubject,
    comparison_in,
    report_in,
)
from samebits.questions.training.records import TrainingRelation, step_in
from samebits.questions.training.rules import figures_of, relation_line

_BY_TRAINER = "Trainer: rows accumulated = one batch"
_BY_MODEL = "rows accumulated = one batch"
_SMOOTHED = "Trainer with label smoothing: rows accumulated = one batch"
_WITH_A_REST = "Trainer: rows accumulated, and a rest = batches, and a rest"
_RESUMED = "Trainer: stopped and resumed = without a stop"
_ACCUMULATED: TrainerRunName = "accumulated"
_MAX_LINES = 6
_WITHOUT_NUMBERS: tuple[TrainerSubject, ...] = (
    "argument",
    "logged learning rates",
    "rounding of the log",
    "config of the model",
    "parameters of the optimizer",
    "order of parameters",
)
"""Changes that are a finding although the run computes the same numbers."""


def _changed(*subjects: TrainerSubject, harmful: bool = False) -> Check:
    """Return a check for what Trainer does differently than in the reference.

    ``harmful`` leaves out what changes no number of the run, as an argument that the model ignores.
    """

    def check(case: Case) -> Iterator[Sighting]:
        comparison = comparison_in(case)
        changes = [
            change
            for change in (comparison.changes if comparison is not None else ())
            if change.subject in subjects
            and (change.is_cause or change.subject in _WITHOUT_NUMBERS)
        ]
        is_harmless = comparison is None or comparison.standing in ("identical", "rounding")
        if changes and not (harmful and is_harmless):
            lines = tuple(map(change_line, changes))
            yield Sighting(_place(changes[0]), lines[:_MAX_LINES])

    return check


def _place(change: TrainerChange) -> str:
    return change.name if change.subject == "argument" else change.subject


def change_line(change: TrainerChange) -> str:
    """Return one change in one line; of an argument, with the text that restores its old value."""
    sides = f"{change.reference} → {change.candidate}"
    if change.subject == "config of the model":
        return f"model.config.{change.name} behind Trainer: {sides}"
    if change.subject == "evaluation":
        return f"{change.name} of the evaluation: {sides}"
    if change.subject != "argument":
        what = " of ".join(filter(None, (change.subject, change.name)))
        return f"{what}: {sides}"
    return f"{change.name}: {sides}; the reference's is TrainingArguments({_given(change)})"


def _given(change: TrainerChange) -> str:
    """Return an argument as Python writes it."""
    value = change.reference
    is_code = value in ("None", "True", "False") or value[:1] in "{[("
    try:
        float(value)
    except ValueError:
        return f"{change.name}={value if is_code else repr(value)}"
    return f"{change.name}={value}"


def trainer_item_line(item: TrainerItem) -> str:
    """Return one number or tensor of a comparison in one line."""
    place = ", ".join(filter(None, (item.signal, item.run, item.place)))
    return f"{place}: {figures_of(item)}"


def _evaluated(case: Case) -> Iterator[Sighting]:
    """Find an evaluation with another loss or other predictions.

    A loss that differs where the step does, too, is no other one unless the model is fed something else.
    """
    comparison = comparison_in(case)
    if comparison is None:
        return
    changes = [c for c in comparison.changes if c.subject == "evaluation" and c.name != OUTCOME]
    loss = comparison.evaluation
    fed = any(change.name in FED for change in changes)
    explained = comparison.standing in ("follows", "not compared", "failed")
    other_loss = loss is not None and loss.outcome == "diverged" and (fed or not explained)
    if other_loss or any(change.name not in FED for change in changes):
        lines = [trainer_item_line(loss)] if loss is not None and other_loss else []
        yield Sighting("evaluation", (*lines, *map(change_line, changes)))


def _refused(case: Case) -> Iterator[Sighting]:
    """Find an evaluation that raises in one release alone."""
    comparison = comparison_in(case)
    if comparison is None:
        return
    for change in comparison.changes:
        if change.subject == "evaluation" and change.name == OUTCOME:
            stack = case.capture.cell.stack
            raises = comparison.reference if change.candidate == RETURNS else stack
            yield Sighting(OUTCOME, (change_line(change),), raises=raises)


def _accumulated(case: Case) -> Iterator[Sighting]:
    """Find accumulation by Trainer that teaches something else, where the model's own does not."""
    broken = _broken(case)
    if _BY_TRAINER in broken and _BY_MODEL not in broken:
        yield Sighting(_BY_TRAINER, (relation_line(broken[_BY_TRAINER]),))


def _accumulated_alone(name: str, where: str) -> Check:
    """Return a check for accumulation that teaches something else in this way alone."""

    def check(case: Case) -> Iterator[Sighting]:
        broken = _broken(case)
        if name in broken and not broken.keys() & {_BY_TRAINER, _BY_MODEL}:
            yield Sighting(where, (relation_line(broken[name]),))

    return check


def _resumed(case: Case) -> Iterator[Sighting]:
    """Find a training that goes on from Trainer's own checkpoint as another one."""
    relation, report = _broken(case).get(_RESUMED), report_in(case)
    if relation is None or report is None:
        return
    what = f"{some(report.lost, 2)}: as before the training, and not as in the checkpoint"
    yield Sighting(
        "train(resume_from_checkpoint=…)",
        (*([what] if report.lost else []), relation_line(relation)),
    )


def _not_the_best(case: Case) -> Iterator[Sighting]:
    """Find a training that is to end as its best checkpoint, and ends as a later one."""
    report = report_in(case)
    for strategy, ended in (report.ends if report is not None else {}).items():
        if ended.other is not None:
            arguments = f"load_best_model_at_end=True, save_strategy={strategy!r}"
            line = (
                f"the metric is best behind step {ended.best}, and the model ends with the weights "
                f"of step {ended.other}"
            )
            yield Sighting(f"TrainingArguments({arguments})", (line,))


def _placed_otherwise(case: Case) -> Iterator[Sighting]:
    """Find a model that holds, computes or saves something else where accelerate places it."""
    report = report_in(case)
    for call, edit in (report.placed if report is not None else {}).items():
        if edit.broken:
            yield breaking(call, edit)


def _accumulates_otherwise(case: Case, comparison: TrainerComparison) -> bool:
    """Return True if one side's Trainer breaks accumulation, from which what it computes then follows."""
    answer = TRAINER.in_row(case.answers)
    stacks = {} if answer is None else answer.stacks
    sides = (stacks.get(side) for side in (comparison.reference, case.capture.cell.stack))
    return any(
        relation.relation == _BY_TRAINER and relation.broken
        for report in sides
        if report is not None and report.relations is not None
        for relation in report.relations.relations
    )


def _broken(case: Case) -> dict[str, TrainingRelation]:
    reports = (step_in(case), report_in(case))
    ways = (report.relations for report in reports if report is not None)
    return {
        relation.relation: relation
        for of_report in ways
        for relation in (of_report.relations if of_report is not None else ())
        if relation.broken
    }


def _other_numbers(case: Case) -> Iterator[Sighting]:
    """Find numbers that differ in float64, too, where nothing names why."""
    comparison = comparison_in(case)
    if comparison is None or comparison.standing != "diverged" or comparison.first is None:
        return
    if any(change.is_cause for change in comparison.changes):
        return
    follows_from_accumulation = _accumulates_otherwise(case, comparison)
    items = [
        item
        for item in comparison.items
        if item.outcome == "diverged"
        and not (follows_from_accumulation and item.run == _ACCUMULATED)
    ]
    if items:
        place = f"{items[0].signal}, {items[0].run}"
        yield Sighting(place, tuple(map(trainer_item_line, items[:_MAX_LINES])))


RULES: tuple[Rule, ...] = (
    Rule("SB851", _changed("argument")),
    Rule("SB852", _changed("order of rows")),
    Rule("SB853", _changed("learning rates")),
    Rule("SB854", _accumulated),
    Rule("SB855", _changed("rows received", "labels received", "num_items_in_batch", harmful=True)),
    Rule("SB856", _changed("optimizer", "weight decay", harmful=True)),
    Rule("SB857", _other_numbers),
    Rule("SB858", _changed("logged learning rates", "rounding of the log")),
    Rule("SB860", _changed("config of the model")),
    Rule("SB869", _refused),
    Rule("SB872", _changed("parameters of the optimizer")),
    Rule("SB873", _changed("order of parameters")),
    Rule("SB874", _evaluated),
    Rule("SB888", _resumed),
    Rule("SB889", _accumulated_alone(_SMOOTHED, "label_smoothing_factor")),
    Rule("SB891", _not_the_best),
    Rule("SB892", _accumulated_alone(_WITH_A_REST, "gradient_accumulation_steps")),
    Rule("SB893", _placed_otherwise),
)

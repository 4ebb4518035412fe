"""SB85x: rules for transformers' own Trainer: its defaults, its rows, its numbers and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting
from samebits.findings.training import relation_line
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.trainer import (
        TrainerChange,
        TrainerItem,
        TrainerReport,
        TrainerRunName,
        TrainerSubject,
    )
    from samebits.records.training import TrainingRelation

    Check = Callable[[Case], Iterator[Sighting]]

_BY_TRAINER = "Trainer: rows accumulated = one batch"
_BY_MODEL = "rows accumulated = one batch"
_ACCUMULATED: TrainerRunName = "accumulated"
_TRIED = "Compared in every release in which Trainer trains a model for four steps and for one."
_MAX_LINES = 6
_WITHOUT_NUMBERS: tuple[TrainerSubject, ...] = (
    "argument",
    "logged learning rates",
    "rounding of the log",
)
"""Changes that are a finding although the run computes the same numbers."""


def _report(case: Case) -> TrainerReport | None:
    return case.training.trainer if case.training is not None else None


def _changed(*subjects: TrainerSubject, harmful: bool = False) -> Check:
    """Return a check for what Trainer does otherwise than in the reference.

    ``harmful`` leaves out what changes no number of the run, as an argument that the model ignores.
    """

    def check(case: Case) -> Iterator[Sighting]:
        report = _report(case)
        comparison = report.comparison if report is not None else None
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
    parts = []
    if item.reference is not None and item.candidate is not None:
        parts.append(f"{item.reference:.6g} → {item.candidate:.6g}")
    if item.own is not None:
        exact = "" if item.float64 is None else f", in float64 {item.float64:.2g}"
        parts.append(f"apart by {item.own:.2g}{exact}")
    if item.note:
        parts.append(item.note)
    return f"{item.signal}, {item.run}, {item.place}: {'; '.join(parts)}"


def _accumulated(case: Case) -> Iterator[Sighting]:
    """Find accumulation by Trainer that teaches something else, where the model's own does not."""
    broken = _broken(case)
    if _BY_TRAINER in broken and _BY_MODEL not in broken:
        yield Sighting(_BY_TRAINER, (relation_line(broken[_BY_TRAINER]),))


def _broken(case: Case) -> dict[str, TrainingRelation]:
    relations = case.training.relations if case.training is not None else None
    return {r.relation: r for r in (relations.relations if relations else ()) if r.broken}


def _other_numbers(case: Case) -> Iterator[Sighting]:
    """Find numbers that differ in float64, too, where nothing names why."""
    report = _report(case)
    comparison = report.comparison if report is not None else None
    if comparison is None or comparison.standing != "diverged" or comparison.first is None:
        return
    if any(change.is_cause for change in comparison.changes):
        return
    follows_from_accumulation = _BY_TRAINER in _broken(case)
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
    Rule(
        RuleText(
            code="SB851",
            name="a default of TrainingArguments changed",
            kind="silent",
            scope="release",
            looks_for=(
                "An argument that shapes a training (optimizer, scheduler, decay, clipping, order of "
                "rows, precision, averaging over devices) and has another value than in the "
                "reference where a user names only a folder. An argument that one release lacks is "
                "not compared; nor are those of logs, files and evaluation."
            ),
            cause="The release has another default, or chooses another one for this torch.",
            remedy="Write the argument yourself. The evidence has the value of the reference.",
            example='TrainingArguments(output_dir, optim="adamw_torch")',
            releases=_TRIED,
            references=("transformers: src/transformers/training_args.py",),
        ),
        _changed("argument"),
    ),
    Rule(
        RuleText(
            code="SB852",
            name="Trainer takes the rows in another order",
            kind="silent",
            scope="release",
            looks_for=(
                "Four rows of a dataset, in the order in which the model receives them from Trainer "
                "with the default seed. Rows are told by their content."
            ),
            cause="Another sampler, another seed of it, or numbers that are drawn before it.",
            remedy=(
                "Give Trainer the order: a dataset in the order that you want, and a sampler by "
                "overriding `_get_train_sampler`."
            ),
            releases=_TRIED,
            references=("transformers: src/transformers/trainer.py (_get_train_sampler)",),
        ),
        _changed("order of rows"),
    ),
    Rule(
        RuleText(
            code="SB853",
            name="Trainer takes other learning rates",
            kind="silent",
            scope="release",
            looks_for=(
                "The learning rate of each group of parameters at each update, in twelve digits, "
                "with default arguments, but optim='adamw_torch'."
            ),
            cause="Another scheduler, another warm-up, or a step that is counted otherwise.",
            remedy="Write lr_scheduler_type, learning_rate and warmup_steps yourself.",
            releases=_TRIED,
            references=("transformers: src/transformers/optimization.py",),
        ),
        _changed("learning rates"),
    ),
    Rule(
        RuleText(
            code="SB854",
            name="rows that Trainer accumulates teach something else than one batch",
            kind="silent",
            scope="release",
            looks_for=(
                "Four rows in four micro-batches of one step, against the same four rows as one "
                "batch, both by Trainer: the loss, the norm or a weight differs in float64, too. A "
                "model that breaks the relation by itself has SB843, and not this."
            ),
            cause=(
                "Trainer divides by the number of micro-batches unless the model takes "
                "num_items_in_batch, which it reads from forward's signature: `**kwargs` is enough. "
                "A model that takes it and does not use it then gets four times the gradient."
            ),
            remedy=(
                "Set `accepts_loss_kwargs = False` on the class, so that Trainer divides, or divide "
                "by num_items_in_batch in the model's loss."
            ),
            example="class MyModel(PreTrainedModel):\n    accepts_loss_kwargs = False",
            releases=_TRIED,
            references=("transformers: src/transformers/trainer.py (training_step)",),
        ),
        _accumulated,
    ),
    Rule(
        RuleText(
            code="SB855",
            name="Trainer gives the model other rows, labels or num_items_in_batch",
            kind="silent",
            scope="release",
            looks_for=(
                "What the model's forward receives for each row: the names of its arguments, whether "
                "it is a row of the dataset, where its labels count, and num_items_in_batch. Numbers must "
                "differ beyond rounding: a model may ignore what it is passed."
            ),
            cause=(
                "The collator or remove_unused_columns drops or changes a column, or labels are "
                "counted otherwise: up to 5.2 Trainer counts the first label of each row, which the "
                "shifted loss never uses."
            ),
            remedy=(
                "To get the reference's scale, give Trainer a compute_loss_func that divides by the "
                "count that you want. Losses of both releases are not comparable without it."
            ),
            releases=_TRIED,
            references=("transformers: src/transformers/trainer.py (_get_num_items_in_batch)",),
        ),
        _changed("rows received", "labels received", "num_items_in_batch", harmful=True),
    ),
    Rule(
        RuleText(
            code="SB856",
            name="Trainer builds another optimizer",
            kind="silent",
            scope="release",
            looks_for=(
                "The optimizer's class, its betas, eps and decay as built, and the tensors of the "
                "checkpoint that get the decay, where numbers differ beyond rounding. Whether it is fused "
                "is no part of it."
            ),
            cause="Another default, or another rule for parameters without a decay.",
            remedy="Pass `optimizers=(optimizer, scheduler)` to Trainer.",
            releases=_TRIED,
            references=("transformers: src/transformers/trainer.py (get_decay_parameter_names)",),
        ),
        _changed("optimizer", "weight decay", harmful=True),
    ),
    Rule(
        RuleText(
            code="SB857",
            name="Trainer computes other numbers, and nothing that it was given differs",
            kind="silent",
            looks_for=(
                "Losses, norms and weights of four steps by Trainer that differ in float64, too, "
                "where the plain training step agrees, and order, rates, labels, "
                "num_items_in_batch and optimizer are the same."
            ),
            cause=(
                "Trainer scales, clips or averages otherwise between the loss and the update. Or "
                "experts are one stacked parameter, as from 5.0 on: an expert that no token of a "
                "step reaches then has a gradient of zeros instead of none, and AdamW moves it on "
                "by its momentum and its decay."
            ),
            remedy=(
                "Compare `training_step` and `compute_loss` of both releases. For experts compare "
                "runs of one major release only: no argument of Trainer restores the old update."
            ),
            releases=_TRIED,
            references=("transformers: src/transformers/trainer.py (training_step)",),
        ),
        _other_numbers,
    ),
    Rule(
        RuleText(
            code="SB858",
            name="Trainer's log shows other numbers of the same training",
            kind="api",
            scope="release",
            looks_for=(
                "The learning rates in the log, where the updates used the same ones, and whether "
                "losses are rounded to four digits."
            ),
            cause=(
                "4.48 logs the rate of the next step, and a loss of four digits. Later releases log "
                "the rate that the step used, and from 5.0 on all digits of the loss."
            ),
            remedy="Do not compare logs of both releases line by line; compare the weights.",
            releases=_TRIED,
            references=("transformers: src/transformers/trainer.py (_maybe_log_save_evaluate)",),
        ),
        _changed("logged learning rates", "rounding of the log"),
    ),
)

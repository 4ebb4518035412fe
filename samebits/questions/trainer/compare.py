"""Comparison of what Trainer does with a cell's rows in two releases.

What Trainer chooses and passes on is compared exactly. The numbers are judged as those of a
training step are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from samebits.questions.trainer.evaluation import evaluation_changes, loss_of
from samebits.questions.trainer.moments import misplaced
from samebits.questions.trainer.records import (
    TrainerChange,
    TrainerComparison,
    TrainerFacts,
    TrainerFile,
    TrainerItem,
    TrainerReport,
    TrainerRun,
    TrainerRunName,
    TrainerSignal,
    TrainerSubject,
)
from samebits.questions.training.judge import Sides, Summary

if TYPE_CHECKING:
    from samebits.compare.pair import TensorSource
    from samebits.questions.training.records import TrainingComparison, TrainingReport

SHAPING = (
    "optim",
    "optim_args",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "average_tokens_across_devices",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "seed",
    "data_seed",
    "full_determinism",
    "fp16",
    "bf16",
    "tf32",
    "label_names",
    "label_smoothing_factor",
    "neftune_noise_alpha",
    "remove_unused_columns",
    "group_by_length",
    "train_sampling_strategy",
    "dataloader_drop_last",
    "accelerator_config",
    "use_liger_kernel",
    "torch_compile",
    "torch_empty_cache_steps",
    "use_cache",
)
"""Arguments of TrainingArguments that shape a training; the others name files, logs, devices and
evaluation."""
_COMPARED: tuple[TrainerRunName, ...] = ("row by row", "accumulated")
"""One batch is compared with the accumulated rows, inside each release."""
_SCALARS: tuple[TrainerSignal, ...] = ("losses", "norms")
"""Signals that have a number for each step."""
_IMPLEMENTATIONS = ("fused", "foreach", "capturable", "differentiable")
"""Arguments of an optimizer that choose how the same function is computed."""
_CAUSES: tuple[TrainerSubject, ...] = (
    "order of rows",
    "rows received",
    "labels received",
    "num_items_in_batch",
    "learning rates",
    "optimizer",
    "weight decay",
)
"""What can make Trainer's numbers other numbers."""
_LOGGED_DIGITS = 4
_WITH_ITEMS = "items"
"""The batch of the training step that passes num_items_in_batch."""
Pair = Sides[TrainerFile]
Runs = tuple[TrainerRun, TrainerRun]
HighRuns = tuple["TrainerRun | None", "TrainerRun | None"]


def compared(
    reference: TrainerFile, candidate: TrainerFile, values: TensorSource
) -> TrainerComparison:
    """Return the comparison of two cells, without what the plain training step explains."""
    stack = reference.cell.stack
    pair = Pair(reference, candidate, values)
    if unjudged := pair.unjudged():
        return TrainerComparison(reference=stack, standing=unjudged[0], reason=unjudged[1])
    changes = tuple(_changes(reference, candidate))
    causes = [change for change in changes if change.is_cause]
    summary = Summary(tuple(_items(pair)))
    evaluation = loss_of(pair)
    counts = Counter(summary.counts)
    if evaluation is not None:
        counts[evaluation.outcome] += 1
    return TrainerComparison(
        reference=stack,
        standing=summary.standing,
        first=summary.first,
        items=summary.items,
        counts=dict(counts),
        changes=changes,
        evaluation=evaluation,
        reason=f"Trainer has a different {causes[0].subject}" if causes else "",
    )


def report_of(file: TrainerFile, comparison: TrainerComparison | None) -> TrainerReport:
    """Return the facts of a cell without its tensors, and its comparison."""
    shared = TrainerReport(
        reason=file.reason,
        failure=file.failure,
        accelerate=file.accelerate,
        arguments={name: file.arguments[name] for name in SHAPING if name in file.arguments},
        comparison=comparison,
        relations=file.relations,
        lost=file.lost,
        ends=file.ends,
        placed=file.placed,
        seconds=file.seconds,
    )
    run = file.own.runs.get("row by row") if file.own is not None else None
    if file.own is None or run is None:
        return shared
    return shared.model_copy(
        update={
            "losses": run.losses,
            "norms": run.norms,
            "rates": tuple(rates[0] for rates in run.rates if rates),
            "rows": tuple(chain.from_iterable(r.rows for r in run.received)),
            "items": tuple(r.items for r in run.received),
            "evaluation": file.own.evaluation.loss,
            "built": {"optimizer": run.optimizer, "scheduler": run.scheduler},
        }
    )


def with_step(report: TrainerReport, step: TrainingReport) -> TrainerReport:
    """Return a report in which a difference that begins in the plain step is not accused again.

    What Trainer itself does otherwise stays.
    """
    comparison, plain = report.comparison, step.comparison
    if comparison is None or comparison.standing not in ("diverged", "undecided"):
        return report
    if plain is not None and not _reaches_trainer(step, plain):
        return report
    if any(change.is_cause for change in comparison.changes):
        return report
    if plain is None or plain.standing in ("failed", "not compared"):
        update = {"standing": "not compared", "reason": "the plain step is not compared"}
    else:
        update = {
            "standing": "follows",
            "reason": "it follows from the step, which differs already",
        }
    return report.model_copy(update={"comparison": comparison.model_copy(update=update)})


def _reaches_trainer(step: TrainingReport, plain: TrainingComparison) -> bool:
    """Return True if the step of a batch that Trainer may give differs, or is not compared.

    That is the first batch, with or without num_items_in_batch.
    """
    if plain.standing in ("failed", "not compared"):
        return True
    batches = ("", next(iter(step.losses), ""), _WITH_ITEMS)
    return any(
        item.batch in batches and item.outcome in ("diverged", "undecided") for item in plain.items
    )


# --- what Trainer does ---------------------------------------------------------------------------


def _changes(reference: TrainerFile, candidate: TrainerFile) -> Iterator[TrainerChange]:
    for name in SHAPING:
        values = (reference.arguments.get(name), candidate.arguments.get(name))
        if None not in values:
            yield from _change("argument", name, *values)
    assert reference.own is not None
    assert candidate.own is not None
    for run in _COMPARED:
        sides = (reference.own.runs[run], candidate.own.runs[run])
        yield from _received(run, *sides)
        yield from _change("learning rates", run, *(_numbers(side.rates) for side in sides))
    a, b = (facts.runs["row by row"] for facts in (reference.own, candidate.own))
    yield from _built(a, b)
    for difference in evaluation_changes(reference.own.evaluation, candidate.own.evaluation):
        yield from _change("evaluation", *difference)
    if (other := misplaced(a, b, {*reference.uncertain, *candidate.uncertain})) is not None:
        yield from _change(*other)
    yield from _logged(a, b)
    yield from _config(a, b)


def _change(
    subject: TrainerSubject, name: str, reference: object, candidate: object
) -> Iterator[TrainerChange]:
    if reference != candidate:
        yield TrainerChange(
            subject=subject,
            name=name,
            reference=str(reference),
            candidate=str(candidate),
            is_cause=subject in _CAUSES and name not in _IMPLEMENTATIONS,
        )


def _received(name: str, a: TrainerRun, b: TrainerRun) -> Iterator[TrainerChange]:
    """Yield the changes of what the model received, row by row."""
    orders = [[*chain.from_iterable(r.rows for r in run.received)] for run in (a, b)]
    unknown = [order.count(None) for order in orders]
    if unknown[1] != unknown[0]:
        texts = [
            f"{n} of {len(o)} are no row of the dataset"
            for n, o in zip(unknown, orders, strict=True)
        ]
        yield from _change("rows received", name, *texts)
    elif orders[0] != orders[1]:
        yield from _change("order of rows", name, *(_listed(order) for order in orders))
    names = [sorted({n for r in run.received for n in r.names}) for run in (a, b)]
    yield from _change("rows received", name, *(", ".join(of) for of in names))
    labels = [_labels(run) for run in (a, b)]
    for row in sorted(labels[0].keys() & labels[1].keys()):
        sides = (of[row] for of in labels)
        yield from _change("labels received", f"{name}, row {row}", *sides)
    items = [_items_passed(run) for run in (a, b)]
    shared = sorted(items[0].keys() & items[1].keys())
    yield from _change("num_items_in_batch", name, *(_by_row(of, shared) for of in items))


def _config(a: TrainerRun, b: TrainerRun) -> Iterator[TrainerChange]:
    """Yield the settings of the model's config that a run leaves changed, and the other one does not."""
    for name in sorted({**a.config, **b.config}):
        texts = (
            f"set to {run.config[name][1]}" if name in run.config else "left as it is"
            for run in (a, b)
        )
        yield from _change("config of the model", name, *texts)


def _labels(run: TrainerRun) -> dict[int, str]:
    """Return the positions of the labels that count, by row of the dataset."""
    return {
        row: labels
        for received in run.received
        for row, labels in zip(received.rows, received.labels, strict=False)
        if row is not None
    }


def _items_passed(run: TrainerRun) -> dict[int, str]:
    """Return num_items_in_batch by row of the dataset."""
    return {
        row: "not passed" if received.items is None else f"{received.items:g}"
        for received in run.received
        for row in received.rows
        if row is not None
    }


def _by_row(passed: dict[int, str], rows: Sequence[int]) -> str:
    texts = [passed[row] for row in rows]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def _built(a: TrainerRun, b: TrainerRun) -> Iterator[TrainerChange]:
    yield from _change("optimizer", "class", a.optimizer, b.optimizer)
    for name, value in a.optimizer_arguments.items():
        yield from _change("optimizer", name, value, b.optimizer_arguments.get(name, value))
    shared = a.weights.keys() & b.weights.keys()
    decayed = [shared.intersection(run.decayed) for run in (a, b)]
    only = [", ".join(sorted(x - y)[:3]) or "none more" for x, y in (decayed, decayed[::-1])]
    yield from _change("weight decay", "", *only)
    yield from _change("scheduler", "", a.scheduler, b.scheduler)


def _logged(a: TrainerRun, b: TrainerRun) -> Iterator[TrainerChange]:
    """Yield what the log shows otherwise of the same training."""
    if a.rates == b.rates:
        rates = [_numbers([run.logged_rates]) for run in (a, b)]
        yield from _change("logged learning rates", "", *rates)
    yield from _change("rounding of the log", "", _digits(a), _digits(b))


def _digits(run: TrainerRun) -> str:
    rounded = all(round(loss, _LOGGED_DIGITS) == loss for loss in run.logged_losses)
    return f"{_LOGGED_DIGITS} digits" if rounded else "all digits"


def _numbers(rows: Iterable[Iterable[float]]) -> str:
    """Return numbers in twelve digits, which the order of two operations does not change."""
    return "; ".join(", ".join(f"{number:.12g}" for number in row) for row in rows)


def _listed(rows: Sequence[int | None]) -> str:
    return ", ".join(str(row) for row in rows)


# --- the numbers ---------------------------------------------------------------------------------


def _items(pair: Pair) -> Iterator[TrainerItem]:
    assert pair.reference.own is not None
    assert pair.candidate.own is not None
    for name in _COMPARED:
        own = (pair.reference.own.runs[name], pair.candidate.own.runs[name])
        high = (_run(pair.reference.float64, name), _run(pair.candidate.float64, name))
        yield from _scalars(pair, name, own, high)
        yield from _weights(pair, name, own, high)


def _run(facts: TrainerFacts | None, name: TrainerRunName) -> TrainerRun | None:
    return facts.runs.get(name) if facts is not None else None


def _scalars(pair: Pair, name: TrainerRunName, own: Runs, high: HighRuns) -> Iterator[TrainerItem]:
    for signal in _SCALARS:
        a, b = (getattr(run, signal) for run in own)
        exact = [getattr(run, signal) if run is not None else () for run in high]
        for step in range(max(len(a), len(b))):
            item = TrainerItem(
                signal=signal,
                run=name,
                place=f"step {step + 1}",
                outcome="identical",
                reference=_at(a, step),
                candidate=_at(b, step),
            )
            high_numbers = [_at(e, step) for e in exact]
            yield pair.numbers(item, high_numbers, "only one side has such a step")


def _at(numbers: Sequence[float], step: int) -> float | None:
    return numbers[step] if step < len(numbers) else None


def _weights(pair: Pair, name: TrainerRunName, own: Runs, high: HighRuns) -> Iterator[TrainerItem]:
    uncertain = {*pair.reference.uncertain, *pair.candidate.uncertain}
    a, b = own[0].weights, own[1].weights
    exact = [run.weights if run is not None else {} for run in high]
    for tensor in (t for t in a if t in b and t not in uncertain):
        item = TrainerItem(signal="weights", run=name, place=tensor, outcome="identical")
        refs = (exact[0].get(tensor), exact[1].get(tensor))
        yield pair.tensors(item, (a[tensor], b[tensor]), refs)

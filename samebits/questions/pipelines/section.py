"""Pipelines: how many calls differ in each release, and all differences of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from samebits.questions.differing import Line, once_for_models
from samebits.questions.pipelines.records import (
    PIPELINES,
    PipelineOutcome,
    PipelinesOfRow,
    PipelinesReport,
)
from samebits.records.report import Report, Row
from samebits.text.blocks import folded, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, prose
from samebits.text.numbers import plural

TITLE = "Pipelines"
_MAX_LINES, _MAX_VALUE = 40, 80
_WORDS: dict[PipelineOutcome, str] = {
    "other answer": "another answer from the same outputs of the model",
    "other input": "the model is fed something else",
    "raised": "one side raises",
    "removed": "the release does not have the task",
    "undecided": "not decided",
    "follows": "as the model's outputs or images differ",
    "rounding": "rounding",
}
_NAMED = ("other answer", "other input", "raised", "removed")
"""What is a finding."""


def of_run(report: Report) -> Markdown:
    """Return what each release answers, one line for all models in which the same happens; may be empty."""
    models = {m: row for m, row in PIPELINES.by_model(report.rows).items() if _asked(row)}
    if not models:
        return EMPTY
    stacks = [stack.id for stack in report.stacks]
    rows = once_for_models({model: _lines(row, stacks) for model, row in models.items()})
    intro = fill(
        "`pipeline(task, model=folder)` of {}, called with small made inputs for each task that its class "
        "serves. A difference that comes with the outputs of the model is not the pipeline's. It does not "
        "affect the verdict.",
        plural(len(models), "model"),
    )
    return page([heading(2, TITLE), intro, table(["task", *stacks, "models"], rows)])


def of_model(rows: list[Row], report: Report) -> Markdown:
    """Return the tasks of one model, and the calls that differ."""
    row = next(iter(PIPELINES.by_model(rows).values()), None)
    if row is None:
        return EMPTY
    stacks = [stack.id for stack in report.stacks if stack.id in row.stacks]
    tasks = table(["task", *stacks], _lines(row, stacks))
    return page([heading(2, TITLE), tasks, _differences(row)])


def pipelines_differ(rows: Iterable[Row]) -> bool:
    """Return True if a pipeline is accused."""
    return any(
        difference.outcome in _NAMED
        for row in PIPELINES.by_model(rows).values()
        for compared in row.compared.values()
        for difference in compared.differences
    )


def _asked(row: PipelinesOfRow) -> bool:
    return any(
        not task.left_out for signal in row.stacks.values() for task in signal.tasks.values()
    )


def _lines(row: PipelinesOfRow, stacks: list[str]) -> list[Line]:
    tasks = dict.fromkeys(task for signal in row.stacks.values() for task in signal.tasks)
    return [(prose(t), *(prose(_cell(row, t, stack)) for stack in stacks)) for t in tasks]


def _cell(row: PipelinesOfRow, name: str, stack: str) -> str:
    """Return what became of a task in a stack."""
    signal = row.stacks.get(stack)
    task = signal.tasks.get(name) if signal is not None else None
    if task is None:
        return ""
    compared = row.compared.get(stack)
    differing = _counts(compared, name) if compared is not None else ""
    return differing or task.in_words


def _counts(compared: PipelinesReport, task: str) -> str:
    """Return how many calls differ, by the kind of the difference."""
    counts = Counter(d.outcome for d in compared.differences if d.task == task)
    return "; ".join(
        words if outcome == "removed" else f"{words}: {plural(counts[outcome], 'call')}"
        for outcome, words in _WORDS.items()
        if outcome in counts
    )


def _differences(row: PipelinesOfRow) -> Markdown:
    lines = [
        [
            prose(stack),
            prose(": ".join(filter(None, (each.task, each.case)))),
            prose(_WORDS[each.outcome]),
            code(each.at or each.field) if each.at or each.field else EMPTY,
            *(code(clip(side, _MAX_VALUE)) for side in (each.reference, each.candidate)),
        ]
        for stack, compared in row.compared.items()
        for each in compared.differences
    ]
    if not lines:
        return EMPTY
    reference = next(iter(row.compared.values())).reference
    headers = ["environment", "call", "differs by", "where", reference, "this environment"]
    title = f"Differences ({plural(len(lines), 'call')})"
    return folded(title, table(headers, lines), _MAX_LINES)

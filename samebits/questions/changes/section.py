"""What reports say of changed code that did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.changes.records import CHANGES
from samebits.text.blocks import codes, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.questions.changes.records import Step, Unrun
    from samebits.records.report import Report, Row

TITLE = "Changed code that did not run"
SHOWN = 10
"""Definitions that a page lists for a step."""
_NEAR = {
    "own": "the model's own file",
    "ran": "a file that ran in part",
    "imported": "an imported file",
}


def of_run(report: Report) -> Markdown:
    """Return how much of each step ran, for all models; may be empty."""
    rows = [
        [
            code(row.model),
            prose(f"{step.reference} → {step.candidate}"),
            f"{step.changed:,}",
            f"{step.ran:,}",
            f"{step.unrun:,}",
        ]
        for row in report.rows
        for step in steps_of(row)
        if step.changed
    ]
    if not rows:
        return EMPTY
    intro = prose(
        "Functions, classes and constants of transformers that differ between two releases and that the "
        "model can reach by name. A difference in what did not run cannot show in a verdict."
    )
    header = ["model", "step", "changed", "ran", "did not run"]
    return page([heading(2, TITLE), intro, table(header, rows)])


def of_model(rows: list[Row], _report: Report) -> Markdown:
    """Return the nearest definitions that did not run, for each step of a model; may be empty."""
    blocks = [block for row in rows for step in steps_of(row) for block in _of_step(step)]
    return page([heading(2, TITLE), *blocks]) if blocks else EMPTY


def _of_step(step: Step) -> Iterator[Markdown]:
    if step.unread:
        yield join([prose("Not read by the Python of samebits: "), codes(step.unread)])
    if not step.unrun:
        return
    yield fill(
        "{} → {}: {} of {} that the model can reach did not run in any check.",
        step.reference,
        step.candidate,
        f"{step.unrun:,}",
        plural(step.changed, "changed definition"),
    )
    listed = step.first[:SHOWN]
    yield table(
        ["definition", "place", "where"],
        [[code(entry.name), _place(entry), prose(_NEAR[entry.near])] for entry in listed],
    )
    if step.unrun > len(listed):
        yield prose(f"{plural(step.unrun - len(listed), 'more definition')} did not run.")


def _place(entry: Unrun) -> Markdown:
    return code(f"{entry.file}:{entry.candidate_line}")


def brief(report: Report) -> str:
    """Return how much of the changed code ran, for the first screen; '' without a change."""
    steps = [step for row in report.rows for step in steps_of(row)]
    unrun = sum(step.unrun for step in steps)
    if not unrun:
        return ""
    changed = plural(sum(step.changed for step in steps), "changed definition")
    return f"{unrun:,} of {changed} of transformers within reach did not run in any check"


def steps_of(row: Row) -> tuple[Step, ...]:
    """Return the steps of a row; none if they were not looked at."""
    answer = CHANGES.in_row(row.answers)
    return answer.steps if answer is not None else ()

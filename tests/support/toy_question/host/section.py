"""What reports show of the toy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.toy.records import TOY

from samebits.text.blocks import heading, page, table
from samebits.text.markdown import EMPTY, Markdown, prose

if TYPE_CHECKING:
    from samebits.records.report import Report, Row

TITLE = "Toy sums"


def of_run(report: Report) -> Markdown:
    """Return the section of all models."""
    return of_model(list(report.rows), report)


def of_model(rows: list[Row], _report: Report) -> Markdown:
    """Return the section of one model."""
    lines = [
        [row.model, stack, f"{file.own:.6g}", answer.standings.get(stack, ""), prose(file.note)]
        for row in rows
        if (answer := TOY.in_row(row.answers)) is not None
        for stack, file in answer.jobs.items()
    ]
    if not lines:
        return EMPTY
    return page([heading(2, TITLE), table(["model", "stack", "sum", "standing", "note"], lines)])


def has_details(rows: list[Row], _report: Report) -> bool:
    """Return True if a sum diverged."""
    answers = filter(None, (TOY.in_row(row.answers) for row in rows))
    return any("diverged" in answer.standings.values() for answer in answers)


def brief(report: Report) -> str:
    """Return the stacks whose sum diverged."""
    stacks = [
        stack
        for row in report.rows
        if (answer := TOY.in_row(row.answers)) is not None
        for stack, standing in answer.standings.items()
        if standing == "diverged"
    ]
    return f"Toy sums diverge on {', '.join(dict.fromkeys(stacks))}" if stacks else ""

"""What an upgrade changes, before any detail: each stack's cells by kind, and the models to look at."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from samebits.reports.blocks import heading, link, page, table, titled
from samebits.reports.figures import count, plural
from samebits.reports.names import page_path
from samebits.reports.text import EMPTY, Markdown, code, fill, join, prose
from samebits.words import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.comparison import CellResult
    from samebits.document import ExpectedReport, Report

COLUMNS = {
    Verdict.IDENTICAL: "same bits",
    Verdict.ROUNDING: "rounding",
    Verdict.DIVERGED: "diverged",
    Verdict.DIFFERS: "undecided",
    Verdict.UNSTABLE: "unstable",
    Verdict.FAILED: "failed",
    Verdict.ABSENT: "absent",
}
"""Verdicts as judged, before matrix.yaml's ``expected``, and their columns."""

SERIOUS = (Verdict.FAILED, Verdict.UNSTABLE, Verdict.DIVERGED, Verdict.DIFFERS)
"""What is more than rounding, the worst first."""


def glance(report: Report) -> Markdown:
    """Return the cells of each stack by kind, and what is more than rounding, stack by stack."""
    if len(report.stacks) < 2 or not report.rows:
        return EMPTY
    headers = ["stack", "transformers", *COLUMNS.values()]
    rows = [
        [
            code(stack.id),
            stack.transformers or "not built",
            *_counts(list(_cells(report, stack.id))),
        ]
        for stack in report.stacks
    ]
    counted = table(headers, rows, right=headers[2:])
    return page([heading(2, "At a glance"), counted, _LEGEND, _serious(report)])


_LEGEND = Markdown(
    "Cells by what they do beside the reference, whether matrix.yaml expects it or not; "
    "cells that are the reference are left out."
)


def _cells(report: Report, stack: str) -> Iterator[CellResult]:
    for row in report.rows:
        for cell in row.cells:
            if cell.cell.stack == stack and cell.judged != Verdict.REFERENCE:
                yield cell


def _counts(cells: list[CellResult]) -> Iterator[str]:
    counted = Counter(cell.judged for cell in cells)
    for verdict in COLUMNS:
        yield count(counted[verdict]) if counted[verdict] else ""


def _serious(report: Report) -> Markdown:
    """Return a line for each stack and kind: the models whose cells do more than round."""
    lines = []
    for stack in report.stacks:
        for verdict in SERIOUS:
            models = dict.fromkeys(
                cell.cell.model for cell in _cells(report, stack.id) if cell.judged == verdict
            )
            if models:
                names = join(link(name, page_path(name)) for name in models)
                lines.append([code(stack.id), COLUMNS[verdict], count(len(models)), names])
    if not lines:
        return EMPTY
    title = titled("More than rounding, model by model")
    return page([title, table(["stack", "what", "models", "which"], lines, right=["models"])])


def explained(report: Report) -> Markdown:
    """Return what the matrix file explains at length, a paragraph for each of its entries."""
    entries = [entry for entry in report.expected if entry.explanation and entry.cells]
    if not entries:
        return EMPTY
    return page([heading(2, "Explained"), *map(_explained, entries)])


def _explained(entry: ExpectedReport) -> Markdown:
    models = dict.fromkeys(cell.partition("/")[0] for cell in entry.cells)
    stacks = dict.fromkeys(cell.rpartition("@")[2] for cell in entry.cells)
    where = fill(
        "{} on {} ({}, line {} of the matrix file).",
        join(link(name, page_path(name)) for name in models),
        join(map(code, stacks)),
        plural(len(entry.cells), "cell"),
        str(entry.line),
    )
    return page([heading(3, entry.title or ", ".join(models)), prose(entry.explanation, limit=4000), where])

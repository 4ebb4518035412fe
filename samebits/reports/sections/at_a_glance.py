"""What an upgrade changes, before any detail: each stack's cells by kind, and the models to look at."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.exit_code import OPEN
from samebits.records.ids import Verdict
from samebits.reports.sections.findings import named
from samebits.text.blocks import heading, link, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.comparison import CellResult
    from samebits.records.report import ExpectedReport, Report

COLUMNS = {
    Verdict.IDENTICAL: "same bits",
    Verdict.ROUNDING: "rounding",
    Verdict.DIVERGED: "diverged",
    Verdict.DIFFERS: "undecided",
    Verdict.UNSTABLE: "unstable",
    Verdict.FAILED: "failed",
    Verdict.NOT_FINISHED: "not finished",
    Verdict.NOT_OBSERVED: "not observed",
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
    "cells that are the reference are left out, and what every release fails at in the same way."
)


def _cells(report: Report, stack: str) -> Iterator[CellResult]:
    for row in report.rows:
        for cell in row.cells:
            left_out = cell.judged == Verdict.REFERENCE or is_everywhere(cell)
            if cell.cell.stack == stack and not left_out:
                yield cell


def _counts(cells: list[CellResult]) -> Iterator[str]:
    counted = Counter(cell.judged for cell in cells)
    for verdict in COLUMNS:
        yield count(counted[verdict]) if counted[verdict] else ""


def _serious(report: Report) -> Markdown:
    """Return step by step from stack to stack the models that begin or cease to do more than round."""
    built = [stack.id for stack in report.stacks if stack.failure is None]
    lines = []
    for before, stack in zip([None, *built], built, strict=False):
        for what, found in _step(report, before, stack).items():
            step = fill("{}\u00a0→\u00a0{}", before, stack) if before else stack
            lines.append([step, what, count(len(found)), join(found)])
    if not lines:
        return EMPTY
    title = titled("More than rounding, from stack to stack")
    shown = table(["step", "what", "models", "which"], lines, right=["models"])
    return page([title, shown, _STEPS])


_STEPS = Markdown(
    "A model stands where it begins, so an upgrade over several stacks is all its steps together. "
    "In brackets: defects that rules know by name and that begin there, too; the model's page has the "
    "remedy. `nox -s matrix -- --stacks A,B` compares two stacks with each other."
)


def _step(report: Report, before: str | None, stack: str) -> dict[str, list[Markdown]]:
    """Return what begins, changes or ends with a stack, and the models of which it is true."""
    past, now = _by_model(report, before), _by_model(report, stack)
    found: dict[str, list[Markdown]] = {}
    for verdict, changed in product(SERIOUS, (False, True)):
        for model, cells in now.items():
            before_it = past.get(model, [])
            if _worst(cells) != verdict or not _is_news(before_it, cells, changed=changed):
                continue
            known = named(cells, report) - named(before_it, report)
            what = f"{COLUMNS[verdict]} otherwise" if changed else COLUMNS[verdict]
            found.setdefault(what, []).append(_named(model, sorted(known)))
    for model, cells in now.items():
        if any(cell.judged in OPEN for cell in cells):
            continue  # what is not known may go on
        if _worst(past.get(model, [])) in SERIOUS and _worst(cells) not in SERIOUS:
            found.setdefault("no longer", []).append(_named(model, []))
    return found


def _by_model(report: Report, stack: str | None) -> dict[str, list[CellResult]]:
    """Return the cells of each model that a stack knows."""
    models: dict[str, list[CellResult]] = {}
    for row in report.rows:
        for cell in row.cells:
            left_out = cell.judged == Verdict.ABSENT or is_everywhere(cell)
            if cell.cell.stack == stack and not left_out:
                models.setdefault(row.model, []).append(cell)
    return models


def _worst(cells: list[CellResult]) -> Verdict | None:
    """Return the most serious of what the cells do; None if none does more than round."""
    judged = {cell.judged for cell in cells}
    return next((verdict for verdict in SERIOUS if verdict in judged), None)


def _is_news(past: list[CellResult], cells: list[CellResult], *, changed: bool) -> bool:
    """Return True if the most serious thing begins here; ``changed``: if it goes on otherwise."""
    worst = _worst(cells)
    if not changed:
        return _worst(past) != worst
    compared = worst in (Verdict.DIVERGED, Verdict.DIFFERS)
    return compared and _worst(past) == worst and _numbers(past) != _numbers(cells)


def _numbers(cells: list[CellResult]) -> list[str]:
    """Return what is equal if the cells part from their references by the same numbers."""
    # The repr, because NaN is equal to NaN in it.
    return sorted(repr((str(cell.cell.variant), cell.signals)) for cell in cells)


def _named(model: str, codes: list[str]) -> Markdown:
    name = link(model, page_path(model))
    return fill("{} ({})", name, ", ".join(codes)) if codes else name


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
    title = heading(3, entry.title or ", ".join(models))
    return page([title, prose(entry.explanation, limit=4000), where])

"""What needs no attention: expected differences, absent models, remarks on identical cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.blocks import codes, folded, heading, linked, page, table
from samebits.reports.figures import plural
from samebits.reports.outcomes import row_name
from samebits.reports.text import EMPTY, Markdown, code, fill, prose
from samebits.words import Verdict

if TYPE_CHECKING:
    from samebits.comparison import CellResult
    from samebits.document import ExpectedReport, Report, Row


def expected_differences(report: Report) -> Markdown:
    """Return the entries of matrix.yaml's ``expected`` and whether each still occurs."""
    if not report.expected:
        return EMPTY
    headers = ["line", "entry", "reason", "reference", "cells", "now"]
    rows = [_entry(entry, report.matrix) for entry in report.expected]
    return page([heading(2, "Expected differences"), table(headers, rows)])


def _entry(entry: ExpectedReport, matrix: str) -> list[str]:
    return [
        str(entry.line),
        code(entry.text),
        entry.reason,
        linked(entry.reference),
        codes(entry.cells, limit=4),
        _now(entry, matrix),
    ]


def _now(entry: ExpectedReport, matrix: str) -> Markdown:
    if not entry.evaluated:
        return Markdown("not evaluated: this run left its cells out")
    if not entry.fixed:
        return Markdown("still occurs")
    what = (
        "remove it" if not entry.cells else fill("remove {} from it", codes(entry.fixed, limit=4))
    )
    return fill("**fixed**: {} ({} line {})", what, matrix, str(entry.line))


def absent(report: Report) -> Markdown:
    """Return what some stacks do not know, rows and stacks of the same reason joined."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for row in report.rows:
        for cell in row.cells:
            if cell.verdict == Verdict.ABSENT:
                reason = cell.absent or cell.headline
                stacks = found.setdefault(reason, {})
                stacks.setdefault(cell.cell.stack, {})[row_name(row)] = None
    lines = [
        [stack, codes(rows), reason]
        for reason, stacks in found.items()
        for stack, rows in stacks.items()
    ]
    if not lines:
        return EMPTY
    return page([heading(2, "Absent"), table(["stack", "rows", "why"], lines)])


def remarks(report: Report) -> Markdown:
    """Return notes, skips and moved facts of the cells that have no section of their own."""
    said: dict[tuple[str, Markdown], dict[str, None]] = {}
    for row in report.rows:
        for stacks, remark in _row_remarks(row):
            said.setdefault((stacks, remark), {})[row_name(row)] = None
    lines = [[codes(rows), stacks, remark] for (stacks, remark), rows in said.items()]
    if not lines:
        return EMPTY
    shown = folded(plural(len(lines), "remark"), table(["rows", "stacks", "remark"], lines))
    return page([heading(2, "Remarks on cells without a difference"), shown])


def _row_remarks(row: Row) -> list[tuple[str, Markdown]]:
    """Return every remark with the stacks that it holds for."""
    stacks: dict[Markdown, list[str]] = {}
    for cell in row.cells:
        if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL):
            for remark in _cell_remarks(cell):
                stacks.setdefault(remark, []).append(cell.cell.stack)
    return [(", ".join(names), remark) for remark, names in stacks.items()]


def _cell_remarks(cell: CellResult) -> list[Markdown]:
    notes = [prose(note) for note in cell.notes]
    skips = [fill("not observed: {}: {}", code(skip.what), skip.reason) for skip in cell.skips]
    changes = [
        fill("{}: {} that moved no bit", kind, plural(len(facts), "change"))
        for kind, facts in cell.changes.items()
        if facts
    ]
    return [*notes, *skips, *changes]

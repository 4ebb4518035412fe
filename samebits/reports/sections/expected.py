"""What needs no attention: expected differences, absent models, remarks on identical cells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.records.ids import Verdict
from samebits.reports.stories import row_name
from samebits.text.blocks import codes, details, folded, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from samebits.records.comparison import CellResult
    from samebits.records.report import ExpectedReport, Report, Row

TITLE = "Remarks on cells without a difference"

WIDEST_NOTE = 200
"""Characters of a note in report.md; the page of the model has all of it."""

_OWN = re.compile(r"\w+(?:\.\w+)+|\b[A-Z][a-z0-9]+[A-Z]\w*|\d[\d,]*")
"""What is one model's own in a remark: names of modules and classes, numbers."""


def expected_differences(report: Report) -> Markdown:
    """Return the entries of matrix.yaml's ``expected``: those to act on, and those that occur folded."""
    if not report.expected:
        return EMPTY
    fixed = [entry for entry in report.expected if entry.fixed]
    occur = [entry for entry in report.expected if _occurs(entry) and not entry.fixed]
    left_out = sum(not entry.evaluated for entry in report.expected)
    parts = [heading(2, "Expected differences")]
    if fixed:
        headers = ["line", "entry", "what to do", "reason"]
        parts.append(table(headers, (_fixed(entry, report.matrix) for entry in fixed)))
    if occur:
        name = plural(len(occur), "entry that still occurs", "entries that still occur")
        headers = ["line", "entry", "cells"]
        parts.append(details(name, table(headers, map(_occurring, occur))))
    if left_out:
        parts.append(
            fill(
                "Not evaluated, because this run left their cells out: {}.",
                plural(left_out, "entry", "entries"),
            )
        )
    if untold := dict.fromkeys(cell for entry in report.expected for cell in entry.untold):
        parts.append(
            fill(
                "Covered by no entry, because this run left out what the entries compare them with: {}.",
                codes(untold, limit=4),
            )
        )
    return page(parts)


def _occurs(entry: ExpectedReport) -> bool:
    return entry.evaluated and bool(entry.cells or not entry.untold)


def _occurring(entry: ExpectedReport) -> list[str]:
    return [str(entry.line), code(entry.text), codes(entry.cells, limit=2)]


def _fixed(entry: ExpectedReport, matrix: str) -> list[str]:
    what = (
        "remove it" if not entry.cells else fill("remove {} from it", codes(entry.fixed, limit=4))
    )
    now = fill("**fixed**: {} ({} line {})", what, matrix, str(entry.line))
    return [str(entry.line), code(entry.text), now, entry.reason]


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
    """Return what is worth knowing of cells that have no block, once for all that say it alike."""
    rows = [row for row in report.rows if has_remarks(row)]
    if not rows:
        return EMPTY
    alike: dict[str, dict[str, None]] = {}
    first: dict[str, Markdown] = {}
    for row in rows:
        for remark in _said(row, _gist):
            key = _OWN.sub("", remark)
            first.setdefault(key, remark)
            alike.setdefault(key, {})[row_name(row)] = None
    most_first = sorted(alike, key=lambda key: -len(alike[key]))
    lines = [
        [count(len(alike[key])), join(map(code, [*alike[key]][:2])), first[key]]
        for key in most_first
    ]
    name = plural(len(lines), "remark")
    shown = table(["rows", "such as", "remark on the first of them"], lines, right=("rows",))
    where = Markdown("The pages of the models have them row by row.")
    return page([heading(2, TITLE), folded(name, page([where, shown]))])


def remarks_of(rows: list[Row]) -> Markdown:
    """Return every remark on the rows of one model, for its own page."""
    lines = [
        [prose(row.variant), ", ".join(stacks), remark]
        for row in rows
        for remark, stacks in _said(row, _in_full).items()
    ]
    if not lines:
        return EMPTY
    return page([heading(2, TITLE), table(["variant", "stacks", "remark"], lines)])


def has_remarks(row: Row) -> bool:
    """Return True if there is something to say of the row's cells without a difference."""
    return bool(_said(row, _in_full))


def _said(row: Row, remarks: Callable[[CellResult], list[Markdown]]) -> dict[Markdown, list[str]]:
    """Return every remark with the stacks that it holds for."""
    stacks: dict[Markdown, list[str]] = {}
    for cell in row.cells:
        if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL):
            for remark in remarks(cell):
                stacks.setdefault(remark, []).append(cell.cell.stack)
    return stacks


def _in_full(cell: CellResult) -> list[Markdown]:
    notes = [prose(note) for note in cell.notes]
    skips = [fill("not observed: {}: {}", code(skip.what), skip.reason) for skip in cell.skips]
    changes = [
        fill("{}: {} that moved no bit", kind, plural(len(facts), "change"))
        for kind, facts in cell.changes.items()
        if facts
    ]
    return [*notes, *skips, *changes]


def _gist(cell: CellResult) -> list[Markdown]:
    """Return the same, cut where names and figures begin to go into detail."""
    notes = [prose(clip(note, WIDEST_NOTE)) for note in cell.notes]
    skips = [fill("not observed: {}: {}", code(skip.what), skip.reason) for skip in cell.skips]
    changes = [
        fill("{}: changes that moved no bit", kind) for kind, facts in cell.changes.items() if facts
    ]
    return [*notes, *skips, *changes]

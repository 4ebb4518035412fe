"""What needs no attention: expected differences, absent models, remarks on identical cells."""

from __future__ import annotations

import re

from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import ExpectedReport, Report, Row
from samebits.reports.stories import row_name
from samebits.text.blocks import below, codes, details, folded, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.numbers import count, plural

TITLE = "Remarks on cells without a difference"

MAX_NOTE = 200
"""Limit in characters for a note in report.md; the page of the model has all of it."""

_MODEL_SPECIFIC = re.compile(r"\w+(?:\.\w+)+|\b[A-Z][a-z0-9]+[A-Z]\w*|\d[\d,]*")
"""Parts of a remark that are specific to one model: names of modules and classes, numbers."""


def expected_differences(report: Report) -> Markdown:
    """Return the entries of ``expected`` in matrix.yaml.

    Entries that need a change are shown; entries whose differences still occur are folded.
    """
    if not report.expected:
        return EMPTY
    fixed = [entry for entry in report.expected if entry.fixed]
    occurring = [entry for entry in report.expected if _occurs(entry) and not entry.fixed]
    n_left_out = sum(not entry.evaluated for entry in report.expected)
    parts = [heading(2, "Expected differences")]
    if fixed:
        headers = ["line", "entry", "what to do", "reason"]
        parts.append(table(headers, (_fixed(entry, report.matrix) for entry in fixed)))
    if occurring:
        name = plural(len(occurring), "entry that still occurs", "entries that still occur")
        headers = ["line", "entry", "cells"]
        parts.append(details(name, table(headers, map(_occurring, occurring))))
    if n_left_out:
        parts.append(
            fill(
                "Not evaluated, because this run does not include their cells: {}.",
                plural(n_left_out, "entry", "entries"),
            )
        )
    if not_judged := dict.fromkeys(cell for entry in report.expected for cell in entry.untold):
        parts.append(
            fill(
                "Not covered by any entry, because this run does not include the environment that the "
                "entries compare them with: {}.",
                codes(not_judged, limit=4),
            )
        )
    return page(parts)


def _occurs(entry: ExpectedReport) -> bool:
    return entry.evaluated and bool(entry.cells or not entry.untold)


def _occurring(entry: ExpectedReport) -> list[str]:
    return [str(entry.line), code(entry.text), codes(entry.cells, limit=2)]


def _fixed(entry: ExpectedReport, matrix: str) -> list[str]:
    action = (
        "remove it" if not entry.cells else fill("remove {} from it", codes(entry.fixed, limit=4))
    )
    status = fill("**fixed**: {} ({} line {})", action, matrix, str(entry.line))
    return [str(entry.line), code(entry.text), status, entry.reason]


def absent(report: Report) -> Markdown:
    """Return the rows that some stacks do not know, joined by reason and stack."""
    by_reason: dict[str, dict[str, dict[str, None]]] = {}
    for row in report.rows:
        for cell in row.cells:
            if cell.verdict == Verdict.ABSENT:
                reason = cell.absent or cell.headline
                stacks = by_reason.setdefault(reason, {})
                stacks.setdefault(cell.cell.stack, {})[row_name(row)] = None
    lines = [
        [stack, codes(rows), reason]
        for reason, stacks in by_reason.items()
        for stack, rows in stacks.items()
    ]
    return below(heading(2, "Absent"), table(["environment", "rows", "why"], lines))


def remarks(report: Report) -> Markdown:
    """Return remarks on cells without a block of their own, each once for all of its rows."""
    rows = [row for row in report.rows if has_remarks(row)]
    if not rows:
        return EMPTY
    rows_by_key: dict[str, dict[str, None]] = {}
    first_remarks: dict[str, Markdown] = {}
    for row in rows:
        for remark in _stacks_by_remark(row, short=True):
            key = _MODEL_SPECIFIC.sub("", remark)
            first_remarks.setdefault(key, remark)
            rows_by_key.setdefault(key, {})[row_name(row)] = None
    ordered_keys = sorted(rows_by_key, key=lambda key: -len(rows_by_key[key]))
    lines = [
        [count(len(rows_by_key[key])), join(map(code, [*rows_by_key[key]][:2])), first_remarks[key]]
        for key in ordered_keys
    ]
    name = plural(len(lines), "remark")
    shown = table(["rows", "examples", "remark on the first example"], lines, right=("rows",))
    pages_note = Markdown("The models' pages list them row by row.")
    return page([heading(2, TITLE), folded(name, page([pages_note, shown]))])


def remarks_of(rows: list[Row]) -> Markdown:
    """Return every remark on the rows of one model, for its own page."""
    lines = [
        [prose(row.variant), ", ".join(stacks), remark]
        for row in rows
        for remark, stacks in _stacks_by_remark(row, short=False).items()
    ]
    return below(heading(2, TITLE), table(["variant", "environments", "remark"], lines))


def has_remarks(row: Row) -> bool:
    """Return True if there are remarks on the row's cells without a difference."""
    return bool(_stacks_by_remark(row, short=False))


def _stacks_by_remark(row: Row, *, short: bool) -> dict[Markdown, list[str]]:
    """Return every remark with the stacks for which it holds."""
    stacks: dict[Markdown, list[str]] = {}
    for cell in row.cells:
        if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL):
            for remark in _remarks(cell, short=short):
                stacks.setdefault(remark, []).append(cell.cell.stack)
    return stacks


def _remarks(cell: CellResult, *, short: bool) -> list[Markdown]:
    """Return the remarks of a cell, if ``short`` cut before the details: names and figures."""
    notes = [prose(clip(note, MAX_NOTE) if short else note) for note in cell.notes]
    skips = [fill("not observed: {}: {}", code(skip.what), skip.reason) for skip in cell.skips]
    changes = [
        fill(
            "{}: {} that did not change any bit",
            kind,
            "changes" if short else plural(len(facts), "change"),
        )
        for kind, facts in cell.changes.items()
        if facts
    ]
    return [*notes, *skips, *changes]

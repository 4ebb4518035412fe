"""The lines at the end of a run: counts, what needs attention, the report, why it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.figures import plural
from samebits.reports.outcomes import row_name, troubles
from samebits.reports.overview import headline
from samebits.reports.text import shorten, visible

if TYPE_CHECKING:
    from pathlib import Path

    from samebits.document import Report
    from samebits.reports.outcomes import Trouble

MOST_LINES = 12
"""Rows that need attention and are named."""


def summary(report: Report, path: Path) -> list[str]:
    """Return the lines to print, control characters made visible."""
    lines = [headline(report), *_attention(report), *_reasons(report), f"Report: {path}"]
    return [shorten(visible(line), 400) for line in lines]


def _attention(report: Report) -> list[str]:
    found = troubles(report)
    lines = [_line(trouble) for trouble in found[:MOST_LINES]]
    rest = len(found) - MOST_LINES
    return [*lines, f"  … and {rest:,} more"] if rest > 0 else lines


def _line(trouble: Trouble) -> str:
    row, shared = trouble
    cell = shared.first
    words = " ".join(filter(None, [cell.verdict, cell.figure]))
    return f"  {row_name(row)}@{','.join(shared.stacks)}: {words}"


def _reasons(report: Report) -> list[str]:
    if report.exit_code == 0:
        return ["The run passes."]
    reasons = plural(len(report.reasons), "reason")
    start = f"The run does not pass (exit code {report.exit_code}, {reasons}):"
    return [start, *(f"  - {reason}" for reason in report.reasons)]

"""The last lines of a run: where the report is, and then the ten lines on top of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.head import head
from samebits.text.markdown import visible
from samebits.text.names import CAPSULES
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from pathlib import Path

    from samebits.records.report import Report


def summary(report: Report, path: Path) -> list[str]:
    """Return the lines to print, with control characters made visible."""
    return [*map(visible, _capsules(report, path)), visible(f"Report: {path}"), *head(report)]


def _capsules(report: Report, path: Path) -> list[str]:
    """Return a line with the folder of the capsules; [] without capsules."""
    capsules = [c for row in report.rows for c in row.cells if c.capsule and c.capsule.path]
    if not capsules:
        return []
    return [f"{plural(len(capsules), 'capsule')} to reproduce it: {path.parent / CAPSULES}"]

"""Which models have a page of their own."""

from __future__ import annotations

from samebits.questions import questions
from samebits.records.report import Report, Row
from samebits.reports.sections import attention, expected
from samebits.reports.sections.findings import has_findings
from samebits.reports.sections.loading import has_unclean_loads
from samebits.reports.stories import is_quiet


def has_page(rows: list[Row], report: Report) -> bool:
    """Return True if there is something to say about a model beyond its verdicts."""
    return (
        not all(map(is_quiet, rows))
        or any(map(expected.has_remarks, rows))
        or attention.has_changed(rows)
        or any(q.has_details(rows, report) for q in questions() if q.has_details is not None)
        or any(row.state or row.unrun for row in rows)
        or has_unclean_loads(rows)
        or has_findings(rows)
    )

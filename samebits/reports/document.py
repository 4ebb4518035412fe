"""report.md and the pages next to it: the report of a run, for GitHub or an editor.

report.md is what a reader of a pull request takes in: at most :data:`MAX_LINES` lines. The pages have
more, and report.json has all.
"""

from __future__ import annotations

from samebits.records.report import Report
from samebits.reports import details
from samebits.reports.head import notes
from samebits.reports.model_pages import pages
from samebits.reports.packed import NAME
from samebits.reports.sections import in_brief, overview
from samebits.reports.sections.at_a_glance import glance
from samebits.reports.sections.the_worst import the_worst
from samebits.reports.sections.what_changed import what_changed
from samebits.text.blocks import bullets, page
from samebits.text.markdown import Markdown, prose

REPORT = "report.md"
MAX_LINES = 200
MAX_ANSWERS = 15
"""Limit for the lines about models that differ beyond rounding."""


def render(report: Report, data: str = NAME) -> dict[str, str]:
    """Return the text of report.md and the pages next to it, by paths relative to report.md.

    ``data`` is the file with all facts.
    """
    model_pages = pages(report)
    beside = details.pages(report, model_pages)
    documents = {
        REPORT: _main_page(report, beside, model_pages, data),
        **beside,
        **model_pages,
    }
    return {path: f"{text}\n" for path, text in documents.items()}


def _main_page(
    report: Report, beside: dict[str, Markdown], models: dict[str, Markdown], data: str
) -> Markdown:
    """Return report.md; the worst differences take the lines that the other sections leave."""
    before = [
        overview.title(report),
        bullets(prose(line, 500) for line in notes(report)),
        the_worst(report, MAX_ANSWERS),
        in_brief.to_do(report),
        in_brief.beside_the_verdict(report),
        in_brief.models(report, models),
        overview.opening(report),
        glance(report),
    ]
    after = details.links(beside, len(models), data)
    room = MAX_LINES - page([*before, after]).count("\n") - 4
    return page([*before, what_changed(report, room), after])

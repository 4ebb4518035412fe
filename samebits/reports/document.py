"""report.md and the pages beside it: what a run found, for a reader on GitHub or in an editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports import stories as reports_stories
from samebits.reports.model_pages import pages
from samebits.reports.sections import (
    attention,
    environment,
    expected,
    how_to_read,
    overview,
    what_changed,
)
from samebits.reports.sections.at_a_glance import explained, glance
from samebits.reports.sections.crossings import crossings
from samebits.reports.sections.findings import findings
from samebits.reports.sections.loading import loading
from samebits.reports.sections.passing import passing
from samebits.reports.sections.relations import invariants
from samebits.reports.sections.releases import releases
from samebits.reports.sections.tokenizers import tokenizers
from samebits.reports.sections.usage import around_page, around_the_model
from samebits.text.blocks import link, page, slug
from samebits.text.markdown import join

if TYPE_CHECKING:
    from samebits.records.report import Report
    from samebits.text.markdown import Markdown

REPORT = "report.md"


def render(report: Report) -> dict[str, str]:
    """Return the text of report.md and of the pages beside it, by paths relative to the first."""
    of_models = pages(report)
    parts = [
        overview.attention_needed(report),
        glance(report),
        releases(report),
        explained(report),
        overview.summary(report),
        findings(report),
        loading(report),
        around_the_model(report),
        invariants(report),
        crossings(report),
        what_changed.what_changed(report),
        passing(
            (story for story in reports_stories.stories(report.rows) if story.passes),
            report.expected,
        ),
        expected.expected_differences(report),
        expected.absent(report),
        expected.remarks(report),
        tokenizers(report),
        attention.attention_kernels(report),
        environment.stacks(report),
        environment.checkpoints(report, of_models),
        environment.machine(report),
        how_to_read.how_to_read(),
    ]
    whole = page([overview.title(report), overview.opening(report), _contents(parts), *parts])
    documents = {REPORT: whole, **around_page(report), **of_models}
    return {path: f"{text}\n" for path, text in documents.items()}


def _contents(parts: list[Markdown]) -> Markdown:
    """Return a link to every part that begins with a heading."""
    titles = [part.partition("\n")[0].removeprefix("## ") for part in parts if part[:3] == "## "]
    return join((link(title, f"#{slug(title)}") for title in titles), " · ")

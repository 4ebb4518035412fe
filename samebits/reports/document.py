"""report.md and the pages next to it: the report of a run, for GitHub or an editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.model_pages import pages
from samebits.reports.sections import (
    attention,
    environment,
    expected,
    how_to_read,
    overview,
    what_changed,
)
from samebits.reports.sections.at_a_glance import explanations, glance
from samebits.reports.sections.crossings import crossings
from samebits.reports.sections.findings import findings
from samebits.reports.sections.loading import loading
from samebits.reports.sections.passing import passing
from samebits.reports.sections.probes import probes
from samebits.reports.sections.relations import relations
from samebits.reports.sections.releases import releases
from samebits.reports.sections.state import state_left
from samebits.reports.sections.tokenizers import tokenizers
from samebits.reports.sections.usage import around_page, around_the_model
from samebits.reports.stories import stories
from samebits.text.blocks import link, page, slug
from samebits.text.markdown import join

if TYPE_CHECKING:
    from samebits.records.report import Report
    from samebits.text.markdown import Markdown

REPORT = "report.md"


def render(report: Report) -> dict[str, str]:
    """Return the text of report.md and the pages next to it, by paths relative to report.md."""
    model_pages = pages(report)
    sections = [
        overview.attention_needed(report),
        glance(report),
        releases(report),
        explanations(report),
        overview.summary(report),
        findings(report),
        loading(report),
        around_the_model(report),
        relations(report),
        state_left(report),
        crossings(report),
        probes(report),
        what_changed.what_changed(report),
        passing(
            (story for story in stories(report.rows) if story.passes),
            report.expected,
        ),
        expected.expected_differences(report),
        expected.absent(report),
        expected.remarks(report),
        tokenizers(report),
        attention.attention_kernels(report),
        environment.stacks(report),
        environment.checkpoints(report, model_pages),
        environment.machine(report),
        how_to_read.how_to_read(),
    ]
    main_page = page(
        [overview.title(report), overview.opening(report), _contents(sections), *sections]
    )
    documents = {REPORT: main_page, **around_page(report), **model_pages}
    return {path: f"{text}\n" for path, text in documents.items()}


def _contents(sections: list[Markdown]) -> Markdown:
    """Return a link to every section that begins with a heading."""
    titles = [
        section.partition("\n")[0].removeprefix("## ")
        for section in sections
        if section[:3] == "## "
    ]
    return join((link(title, f"#{slug(title)}") for title in titles), " · ")

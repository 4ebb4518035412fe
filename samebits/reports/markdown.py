"""report.md and the pages beside it: what a run found, for a reader on GitHub or in an editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports import environment, guide, kernels, known, outcomes, overview, stories
from samebits.reports.blocks import link, page, slug
from samebits.reports.crossings import crossings
from samebits.reports.findings import findings
from samebits.reports.glance import explained, glance
from samebits.reports.integrity import loading
from samebits.reports.invariants import invariants
from samebits.reports.pages import pages
from samebits.reports.passing import passing
from samebits.reports.releases import releases
from samebits.reports.text import join
from samebits.reports.tokenizers import tokenizers
from samebits.reports.usage import around_page, around_the_model

if TYPE_CHECKING:
    from samebits.document import Report
    from samebits.reports.text import Markdown

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
        stories.what_changed(report),
        passing(
            (story for story in outcomes.stories(report.rows) if story.passes), report.expected
        ),
        known.expected_differences(report),
        known.absent(report),
        known.remarks(report),
        tokenizers(report),
        kernels.attention_kernels(report),
        environment.stacks(report),
        environment.checkpoints(report, of_models),
        environment.machine(report),
        guide.how_to_read(),
    ]
    whole = page([overview.title(report), overview.opening(report), _contents(parts), *parts])
    documents = {REPORT: whole, **around_page(report), **of_models}
    return {path: f"{text}\n" for path, text in documents.items()}


def _contents(parts: list[Markdown]) -> Markdown:
    """Return a link to every part that begins with a heading."""
    titles = [part.partition("\n")[0].removeprefix("## ") for part in parts if part[:3] == "## "]
    return join((link(title, f"#{slug(title)}") for title in titles), " · ")

"""report.md and the pages beside it: what a run found, for a reader on GitHub or in an editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports import environment, guide, kernels, known, overview, stories
from samebits.reports.blocks import page
from samebits.reports.crossings import crossings
from samebits.reports.findings import findings
from samebits.reports.integrity import loading
from samebits.reports.glance import explained, glance
from samebits.reports.invariants import invariants
from samebits.reports.pages import pages
from samebits.reports.tokenizers import tokenizers
from samebits.reports.usage import around_page, around_the_model

if TYPE_CHECKING:
    from samebits.document import Report

REPORT = "report.md"


def render(report: Report) -> dict[str, str]:
    """Return the text of report.md and of the pages beside it, by paths relative to the first."""
    of_models = pages(report)
    blocks = [
        overview.title(report),
        overview.opening(report),
        overview.attention_needed(report),
        glance(report),
        explained(report),
        overview.summary(report),
        findings(report),
        loading(report),
        around_the_model(report),
        invariants(report),
        crossings(report),
        stories.what_changed(report),
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
    documents = {REPORT: page(blocks), **around_page(report), **of_models}
    return {path: f"{text}\n" for path, text in documents.items()}

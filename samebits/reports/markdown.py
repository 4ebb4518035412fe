"""report.md: what a run found, for a reader on GitHub or in a plain text editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports import environment, guide, kernels, known, overview, rows
from samebits.reports.blocks import page

if TYPE_CHECKING:
    from samebits.document import Report


def render(report: Report) -> str:
    """Return the whole of report.md."""
    blocks = [
        overview.title(report),
        overview.opening(report),
        overview.attention_needed(report),
        overview.summary(report),
        rows.what_changed(report),
        known.expected_differences(report),
        known.absent(report),
        known.remarks(report),
        kernels.attention_kernels(report),
        environment.stacks(report),
        environment.checkpoints(report),
        environment.machine(report),
        guide.how_to_read(),
    ]
    return f"{page(blocks)}\n"

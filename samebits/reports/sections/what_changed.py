"""What makes the run fail, row by row: with all details in a small run, else in short."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from samebits.reports.cell.capsule import capsules_of
from samebits.reports.cell.cause import cause_in_short
from samebits.reports.cell.graft import graft_in_short
from samebits.reports.cell.in_full import expectation, in_full, timeline
from samebits.reports.cell.tensors import growth_line
from samebits.reports.stories import (
    QUIET,
    cell_in_short,
    group_cells,
    places,
    stories,
    verdict_word,
)
from samebits.text.blocks import bullets, heading, link, page
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join
from samebits.text.names import page_path
from samebits.text.numbers import count

if TYPE_CHECKING:
    from collections.abc import Hashable

    from samebits.records.comparison import CellResult
    from samebits.records.report import ExpectedReport, Report
    from samebits.reports.stories import Shared, Story

MAX_ROWS_IN_FULL = 12
"""Limit for the rows with all details in report.md; 0 with the releases between the stacks.

A row takes about 10 KB, GitHub shows files up to 500 KB, and that is as much as a reader takes in.
"""


MAX_REASON = 160
"""Limit in characters for the reason why a difference is expected; the section of expected
differences and the page of the model have all of it."""


def what_changed(report: Report) -> Markdown:
    """Return a block for each story that fails the run; the worst come first, with all details."""
    failing = (story for story in stories(report.rows) if not story.passes)
    ranked = sorted(failing, key=lambda story: story.severity)
    if not ranked:
        return EMPTY
    n_full = 0 if any(stack.between for stack in report.stacks) else _how_many_in_full(ranked)
    blocks = [_full(story, report.expected) for story in ranked[:n_full]]
    blocks += [_short(story, report.expected) for story in ranked[n_full:]]
    return page([heading(2, "What changed"), _how_many(n_full, len(ranked)), *blocks])


def _how_many_in_full(ranked: list[Story]) -> int:
    ends = accumulate(len(story.rows) for story in ranked)
    return max(1, sum(end <= MAX_ROWS_IN_FULL for end in ends))


def _how_many(n_full: int, n: int) -> Markdown:
    if n_full == n:
        return EMPTY
    if not n_full:
        return Markdown("Shown in short; the model's page has all details.")
    return fill(
        "The first {} of {} are shown in full, the others in short. "
        "The model's page has all details.",
        count(n_full),
        count(n),
    )


def _full(story: Story, expected: tuple[ExpectedReport, ...]) -> Markdown:
    """Return a block with all details of what fails the run, after its other cells in short."""
    path = page_path(story.model)
    cells = [cell for row in story.rows for cell in row.cells if cell.verdict not in QUIET]
    failing = [cell for cell in cells if not cell.verdict.passes]
    passing = [cell for cell in cells if cell.verdict.passes]
    return page(
        [
            heading(3, story.name),
            timeline(story.rows[0]),
            *in_short(passing, story, expected),
            in_full(failing, story, expected, level=4),
            capsules_of(cells),
            fill("More of this model: {}", link(path, f"{path}{story.anchor}")),
        ]
    )


def _short(story: Story, expected: tuple[ExpectedReport, ...]) -> Markdown:
    cells = [cell for row in story.rows for cell in row.cells if cell.verdict not in QUIET]
    return page(
        [
            heading(3, story.name),
            timeline(story.rows[0]),
            *in_short(cells, story, expected),
            capsules_of(cells),
            _details_link(story, cells),
        ]
    )


def in_short(
    cells: list[CellResult], story: Story, expected: tuple[ExpectedReport, ...]
) -> list[Markdown]:
    """Return why cells are expected, and a line for each of their first differences."""
    groups = group_cells(cells, _place_key)
    reasons = expectation(cells, expected, MAX_REASON)
    return [reasons, bullets(_place_line(group, story) for group in groups)]


def _place_key(cell: CellResult) -> Hashable:
    """Return a key that is equal for cells with the same first difference from the reference."""
    failure = (
        (cell.failure.phase, cell.failure.type, cell.failure.message) if cell.failure else None
    )
    first = (cell.first.signal, cell.first.item) if cell.first else cell.headline
    return cell.cell.variant, cell.verdict, cell.rest, first, failure


def _place_line(shared: Shared, story: Story) -> Markdown:
    cell = shared.first
    figures = ", ".join(dict.fromkeys(cell.figure for cell in shared.cells if cell.figure))
    word = verdict_word(cell)
    words = fill("{} ({})", word, figures) if figures else word
    line = fill("{} {}: {}", _where(shared, story), words, clip(cell_in_short(cell), 300))
    if cause := cause_in_short(cell):
        line = fill("{}; it starts with {}", line, cause)
    if restoration := graft_in_short(cell):
        line = fill("{}; {}", line, restoration)
    growth = growth_line(cell)
    return fill("{}; {}", line, growth) if growth else line


def _where(shared: Shared, story: Story) -> Markdown:
    stacks = places(shared)
    has_variants = len(story.rows) > 1
    return fill("**{}**", f"{shared.first.cell.variant} on {stacks}" if has_variants else stacks)


def _details_link(story: Story, cells: list[CellResult]) -> Markdown:
    """Return where all details are, and the command that runs only what fails the run."""
    path = page_path(story.model)
    details_link = fill("All details: {}", link(path, f"{path}{story.anchor}"))
    commands = [c.reproduce for c in cells if c.reproduce and not c.verdict.passes]
    if not commands:
        return details_link
    return join([details_link, fill("To reproduce: {}", code(commands[0], limit=1000))], " · ")

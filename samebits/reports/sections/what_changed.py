"""What makes the run fail, row by row: in full where a run is small, in short with a page each."""

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

MOST_IN_FULL = 12
"""Rows with all their details in report.md; with the releases between the stacks, none has.

A row takes about 10 KB, GitHub shows files up to 500 KB, and nobody reads more of them in one go.
"""


LONGEST_REASON = 160
"""Characters of why a difference is expected; the section of expected differences has all of them,
and so has the page of the model."""


def what_changed(report: Report) -> Markdown:
    """Return a block for each story that fails the run, the worst first and those in full."""
    failing = (story for story in stories(report.rows) if not story.passes)
    found = sorted(failing, key=lambda story: story.severity)
    if not found:
        return EMPTY
    n_full = 0 if any(stack.between for stack in report.stacks) else _how_many_in_full(found)
    blocks = [_full(story, report.expected) for story in found[:n_full]]
    blocks += [_short(story, report.expected) for story in found[n_full:]]
    return page([heading(2, "What changed"), _how_many(n_full, len(found)), *blocks])


def _how_many_in_full(found: list[Story]) -> int:
    ends = accumulate(len(story.rows) for story in found)
    return max(1, sum(end <= MOST_IN_FULL for end in ends))


def _how_many(n_full: int, n: int) -> Markdown:
    if n_full == n:
        return EMPTY
    if not n_full:
        return Markdown("In short: the page of the model has all details.")
    return fill(
        "The first {} of {} are given in full, the others in short: "
        "the page of the model has all details.",
        count(n_full),
        count(n),
    )


def _full(story: Story, expected: tuple[ExpectedReport, ...]) -> Markdown:
    """Return a block with all that fails the run in full, after the rest of its cells in short."""
    path = page_path(story.model)
    cells = [cell for row in story.rows for cell in row.cells if cell.verdict not in QUIET]
    failing = [cell for cell in cells if not cell.verdict.passes]
    passing = [cell for cell in cells if cell.verdict.passes]
    return page(
        [
            heading(3, story.name),
            timeline(story.rows[0]),
            *_in_short(passing, story, expected),
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
            *_in_short(cells, story, expected),
            capsules_of(cells),
            _ending(story, cells),
        ]
    )


def _in_short(
    cells: list[CellResult], story: Story, expected: tuple[ExpectedReport, ...]
) -> list[Markdown]:
    places = group_cells(cells, _place)
    why = expectation(cells, expected, LONGEST_REASON)
    return [why, bullets(_place_line(place, story) for place in places)]


def _place(cell: CellResult) -> Hashable:
    """Return a key that is equal for cells that part from the reference at the same place."""
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
    said = fill("{} {}: {}", _where(shared, story), words, clip(cell_in_short(cell), 300))
    if start := cause_in_short(cell):
        said = fill("{}; it starts with {}", said, start)
    if restored := graft_in_short(cell):
        said = fill("{}; {}", said, restored)
    growth = growth_line(cell)
    return fill("{}; {}", said, growth) if growth else said


def _where(shared: Shared, story: Story) -> Markdown:
    stacks = places(shared)
    several = len(story.rows) > 1
    return fill("**{}**", f"{shared.first.cell.variant} on {stacks}" if several else stacks)


def _ending(story: Story, cells: list[CellResult]) -> Markdown:
    """Return where all details are, and the command that runs alone what fails the run."""
    path = page_path(story.model)
    details = fill("All details: {}", link(path, f"{path}{story.anchor}"))
    commands = [c.reproduce for c in cells if c.reproduce and not c.verdict.passes]
    if not commands:
        return details
    return join([details, fill("To reproduce: {}", code(commands[0], limit=1000))], " · ")

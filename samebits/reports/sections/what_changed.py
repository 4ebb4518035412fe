"""What makes the run fail, row by row and in short; a model's page has the details."""

from __future__ import annotations

from collections.abc import Hashable

from samebits.records.comparison import CellResult
from samebits.records.report import ExpectedReport, Report
from samebits.reports.cell.capsule import capsules_of
from samebits.reports.cell.cause import cause_in_short
from samebits.reports.cell.graft import graft_in_short
from samebits.reports.cell.in_full import expectation, timeline
from samebits.reports.cell.tensors import growth_line
from samebits.reports.stories import (
    QUIET,
    Shared,
    Story,
    cell_in_short,
    failure_key,
    group_cells,
    places,
    stories,
    verdict_word,
)
from samebits.text.blocks import bullets, heading, link, page
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join
from samebits.text.names import page_path
from samebits.text.numbers import plural

MAX_REASON = 160
"""Limit in characters for the reason why a difference is expected; the section of expected
differences and the page of the model have all of it."""


def what_changed(report: Report, most_lines: int) -> Markdown:
    """Return a block for each story that fails the run, the worst first, in so many lines."""
    failing = (story for story in stories(report.rows) if not story.passes)
    ranked = sorted(failing, key=lambda story: story.severity)
    blocks: list[Markdown] = []
    room = most_lines - 4  # the heading, the line about the others, and blank lines around them
    for story in ranked:
        block = _short(story, report.expected)
        room -= block.count("\n") + 2
        if room < 0:
            break
        blocks.append(block)
    if not blocks:
        return EMPTY
    n_more = len(ranked) - len(blocks)
    more = fill("{}: the models' pages have them.", plural(n_more, "more difference"))
    return page([heading(2, "What fails, in detail"), *blocks, more if n_more else EMPTY])


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
    """Return a key that is equal for cells with the same decisive difference from the reference."""
    difference = cell.decisive
    place = (difference.signal, difference.item) if difference else cell.headline
    return cell.cell.variant, cell.verdict, cell.rest, place, failure_key(cell)


def _place_line(shared: Shared, story: Story) -> Markdown:
    cell = shared.first
    figures = ", ".join(dict.fromkeys(cell.figure for cell in shared.cells if cell.figure))
    word = verdict_word(cell)
    words = fill("{} ({})", word, figures) if figures else word
    line = fill("{} {}: {}", _where(shared, story), words, clip(cell_in_short(cell), 300))
    if cause := cause_in_short(cell, "it "):
        line = fill("{}; {}", line, cause)
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

"""Every detail about where the rows of one story differ from their reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from samebits.diagnose.everywhere import is_everywhere
from samebits.records.capture import Failure, Frame, Skip
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import ExpectedReport, Row
from samebits.reports.cell.cause import causes_of
from samebits.reports.cell.changes import changes
from samebits.reports.cell.failure import failure_places
from samebits.reports.cell.graft import grafts_of
from samebits.reports.cell.hunt import hunt
from samebits.reports.cell.ladder import ladder_of
from samebits.reports.cell.tensors import signal_table, split_table, tensor_tables
from samebits.reports.stories import (
    EVERY_RELEASE,
    Shared,
    Story,
    group_cells,
    joined_lines,
    outcome_key,
    rest_in_words,
    verdict_word,
)
from samebits.text.blocks import below, bullets, codes, fence, heading, linked, page, titled
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.names import spanned
from samebits.text.numbers import rounded_ulp

MAX_FRAMES = 4
"""Limit for the frames of a traceback that are shown unfolded."""


def in_full(
    cells: Iterable[CellResult], story: Story, expected: tuple[ExpectedReport, ...], level: int
) -> Markdown:
    """Return a part for each outcome of these cells; ``level`` is the level of the headings."""
    groups = group_cells(cells, outcome_key)
    return page(_outcome(group, story, expected, level) for group in groups)


def timeline(row: Row) -> Markdown:
    """Return the verdict of every stack in one line; neighbours with one verdict are joined."""
    runs = groupby(row.cells, lambda c: str(c.verdict) if c.rest is None else verdict_word(c))
    words = (fill("{} {}", spanned(cell.cell.stack for cell in run), word) for word, run in runs)
    return join(words, " → ")


def expectation(
    cells: Iterable[CellResult], expected: tuple[ExpectedReport, ...], limit: int = 10_000
) -> Markdown:
    """Return why the matrix file expects these cells to differ, with a link to the source.

    A reason is cut at ``limit`` characters.
    """
    cells = list(cells)
    names = {str(cell.cell) for cell in cells}
    reasons = dict.fromkeys(reason for cell in cells for reason in cell.expected)
    lines = (
        fill("**Expected:** {}{}", clip(reason, limit), _reference_link(reason, names, expected))
        for reason in reasons
    )
    return page(lines)


def _reference_link(reason: str, names: set[str], expected: tuple[ExpectedReport, ...]) -> Markdown:
    for entry in expected:
        if entry.reason == reason and entry.reference and names & {*entry.cells, *entry.fixed}:
            return fill(" ({})", linked(entry.reference))
    return EMPTY


def _outcome(
    shared: Shared, story: Story, expected: tuple[ExpectedReport, ...], level: int
) -> Markdown:
    cell = shared.first
    return page(
        [
            _outcome_heading(shared, story, level),
            _headlines(shared, story),
            _first_difference(cell),
            expectation(shared.cells, expected),
            _failure(shared, story),
            _to_paste(cell),
            _rest_line(cell),
            _unstable(cell),
            explained(shared, story, causes_of, _figures(shared)),
            _reproduce(shared),
        ]
    )


def explained(
    shared: Shared,
    story: Story,
    causes: Callable[[CellResult], Markdown],
    figures: Markdown = EMPTY,
) -> Markdown:
    """Return what explains an outcome: causes, swaps, float64 check, tokens, changes, and notes.

    ``causes`` returns the causes of a cell; ``figures`` stand before the tokens.
    """
    return page(
        [
            _per_stack(shared, story, causes),
            _per_stack(shared, story, grafts_of),
            hunt(shared.cells, story.where),
            _per_stack(shared, story, ladder_of),
            figures,
            split_table(shared.first.splits),
            changes(shared, story),
            _remarks(shared, story),
        ]
    )


def _figures(shared: Shared) -> Markdown:
    return page([_relative(shared), signal_table(shared.first), tensor_tables(shared.first)])


def _outcome_heading(shared: Shared, story: Story, level: int) -> Markdown:
    cell = shared.first
    words = " ".join(filter(None, [verdict_word(cell), cell.figure]))
    stacks = EVERY_RELEASE if is_everywhere(cell) else story.where(shared.cells)
    return heading(level, fill("{}: {}", stacks, words))


def _per_stack(shared: Shared, story: Story, block: Callable[[CellResult], Markdown]) -> Markdown:
    """Return the block of every cell; cells with an equal block share it."""
    groups = group_cells(shared.cells, block)
    if len(groups) == 1:
        return block(groups[0].first)
    return page(
        page([fill("On {}:", story.where(group.cells)), block(group.first)])
        for group in groups
        if block(group.first)
    )


def _headlines(shared: Shared, story: Story) -> Markdown:
    """Return the headlines.

    They are left out if they repeat what follows: the first difference, the error.
    """
    first = shared.first.decisive
    if shared.first.failure is not None and not is_everywhere(shared.first):
        return EMPTY
    if first is not None and all(cell.headline == first.what for cell in shared.cells):
        return EMPTY
    groups = group_cells(shared.cells, lambda cell: rounded_ulp(cell.headline))
    if len(groups) == 1:
        return prose(rounded_ulp(shared.first.headline))
    return bullets(
        fill("{}: {}", story.where(group.cells), rounded_ulp(group.first.headline))
        for group in groups
    )


def _rest_line(cell: CellResult) -> Markdown:
    """Return the result of the part of a cell that was compared."""
    result = rest_in_words(cell)
    return fill("Rest: {}.", result) if result else EMPTY


def _first_difference(cell: CellResult) -> Markdown:
    if cell.first is None:
        return EMPTY
    first = fill("**Differs first:** {}", rounded_ulp(cell.first.what))
    if cell.deciding is None:
        return first
    return page([fill("**Decides:** {}", rounded_ulp(cell.deciding.what)), first])


def _to_paste(cell: CellResult) -> Markdown:
    """Return the lines of matrix.yaml that would let the cell be observed."""
    lines = dict.fromkeys(skip.paste for skip in cell.skips if skip.paste)
    if cell.judged is not Verdict.NOT_OBSERVED or not lines:
        return EMPTY
    title = fill("To observe its forward, write below the model, with its own shapes:")
    return page([title, *(fence(text) for text in lines)])


def _failure(shared: Shared, story: Story) -> Markdown:
    failure = shared.first.failure
    if failure is None:
        return EMPTY
    title = fill("It failed in phase {} with:", code(failure.phase))
    message = fence(f"{failure.type}: {failure.message}")
    traces = _per_stack(shared, story, lambda cell: _trace(cell.failure or failure))
    return page([title, message, traces])


def _trace(failure: Failure) -> Markdown:
    return page([failure_places(failure), _frames(failure)])


def _frames(failure: Failure) -> Markdown:
    deepest = reversed(failure.frames[-MAX_FRAMES:])
    return below(titled("Deepest frames, innermost first"), bullets(map(_frame, deepest)))


def _frame(frame: Frame) -> Markdown:
    place = fill("{} in {}", code(f"{frame.file}:{frame.line}"), code(frame.function))
    return fill("{}: {}", place, code(frame.code)) if frame.code else place


def _unstable(cell: CellResult) -> Markdown:
    if not cell.unstable:
        return EMPTY
    return fill("Different in two runs of this cell: {}.", codes(cell.unstable))


def _relative(shared: Shared) -> Markdown:
    references = dict.fromkeys(str(cell.reference) for cell in shared.cells if cell.reference)
    if not references or not shared.first.signals:
        return EMPTY
    return fill("Signals, relative to {}:", codes(references))


def _remarks(shared: Shared, story: Story) -> Markdown:
    notes = joined_lines(shared, story, lambda cell: map(prose, cell.notes))
    skips = joined_lines(shared, story, lambda cell: map(_skip, cell.skips))
    return page(
        page([titled(title), bullets(_placed(*line) for line in lines)])
        for title, lines in (("Notes", notes), ("Not observed", skips))
        if lines
    )


def _placed(where: str, line: Markdown) -> Markdown:
    """Return a line, which names the cells for which it holds if it does not hold for all."""
    return fill("on {}: {}", where, line) if where else line


def _skip(skip: Skip) -> Markdown:
    return fill("{}: {}", code(skip.what), skip.reason)


def _reproduce(shared: Shared) -> Markdown:
    commands = [cell.reproduce for cell in shared.cells if cell.reproduce]
    if not commands:
        return EMPTY
    return page([titled("To reproduce"), fence("\n".join(commands), "bash")])

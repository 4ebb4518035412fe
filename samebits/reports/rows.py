"""The section of one row: everything known about where its cells part from the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.blocks import (
    bullets,
    codes,
    details,
    fence,
    folded,
    heading,
    linked,
    page,
    table,
    titled,
)
from samebits.reports.figures import plural
from samebits.reports.outcomes import QUIET, is_quiet, outcome, row_name, sharing
from samebits.reports.tensors import signal_table, split_table, tensor_tables
from samebits.reports.text import EMPTY, Markdown, code, fill, join, prose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from samebits.capture import Failure, Frame, Skip
    from samebits.comparison import CellResult, FactChange
    from samebits.document import ExpectedReport, Report, Row
    from samebits.reports.outcomes import Shared

DEEPEST = 4
"""Frames of a traceback that are shown unfolded."""


MOST_TELLING = ("attention.kernel", "weights layout", "load", "config")
"""Kinds of explanatory changes: those that most often are the cause first."""


def what_changed(report: Report) -> Markdown:
    """Return a section for each row that is not identical everywhere, those that fail first."""
    rows = [row for row in report.rows if not is_quiet(row)]
    failing = [row for row in rows if not all(cell.verdict.passes for cell in row.cells)]
    passing = [row for row in rows if row not in failing]
    return page(
        [
            _sections("What changed", failing, report),
            _sections("Differences that do not fail the run", passing, report),
        ]
    )


def _sections(title: str, rows: list[Row], report: Report) -> Markdown:
    if not rows:
        return EMPTY
    return page([heading(2, title), *(_row(row, report.expected) for row in rows)])


def _row(row: Row, expected: tuple[ExpectedReport, ...]) -> Markdown:
    groups = sharing((cell for cell in row.cells if cell.verdict not in QUIET), outcome)
    parts = (_outcome(group, expected) for group in groups)
    return page([heading(3, prose(row_name(row))), _timeline(row), *parts])


def _timeline(row: Row) -> Markdown:
    """Return the verdict of every stack in one line, stacks of one verdict together."""
    groups: list[tuple[str, list[str]]] = []
    for cell in row.cells:
        if not groups or groups[-1][0] != cell.verdict:
            groups.append((cell.verdict, []))
        groups[-1][1].append(cell.cell.stack)
    return join((fill("{} {}", ", ".join(stacks), word) for word, stacks in groups), " → ")


def _outcome(shared: Shared, expected: tuple[ExpectedReport, ...]) -> Markdown:
    cell = shared.first
    return page(
        [
            _outcome_heading(shared),
            _headlines(shared),
            _first_difference(cell),
            _expectation(shared, expected),
            _failure(shared),
            _unstable(cell),
            _relative(cell),
            signal_table(cell),
            tensor_tables(cell),
            split_table(cell.splits),
            _changes(shared),
            _remarks(shared),
            _reproduce(shared),
        ]
    )


def _outcome_heading(shared: Shared) -> Markdown:
    cell = shared.first
    words = " ".join(filter(None, [cell.verdict, cell.figure]))
    return heading(4, fill("{}: {}", ", ".join(shared.stacks), words))


def _per_stack(shared: Shared, block: Callable[[CellResult], Markdown]) -> Markdown:
    """Return what ``block`` says of the cells, once for all those of which it says the same."""
    groups = sharing(shared.cells, block)
    if len(groups) == 1:
        return block(groups[0].first)
    return page(page([_on(group), block(group.first)]) for group in groups if block(group.first))


def _on(shared: Shared) -> Markdown:
    return fill("On {}:", ", ".join(shared.stacks))


def _headlines(shared: Shared) -> Markdown:
    """Return the headlines, unless they say again what differs first."""
    first = shared.first.first
    if first is not None and all(cell.headline == first.what for cell in shared.cells):
        return EMPTY
    groups = sharing(shared.cells, lambda cell: cell.headline)
    if len(groups) == 1:
        return prose(shared.first.headline)
    return bullets(
        fill("{}: {}", ", ".join(group.stacks), group.first.headline) for group in groups
    )


def _first_difference(cell: CellResult) -> Markdown:
    return EMPTY if cell.first is None else fill("**Differs first:** {}", cell.first.what)


def _expectation(shared: Shared, expected: tuple[ExpectedReport, ...]) -> Markdown:
    reasons = shared.first.expected
    names = {str(cell.cell) for cell in shared.cells}
    lines = (
        fill("**Expected:** {}{}", reason, _source(reason, names, expected)) for reason in reasons
    )
    return page(lines)


def _source(reason: str, names: set[str], expected: tuple[ExpectedReport, ...]) -> Markdown:
    for entry in expected:
        if entry.reason == reason and entry.reference and names & {*entry.cells, *entry.fixed}:
            return fill(" ({})", linked(entry.reference))
    return EMPTY


def _failure(shared: Shared) -> Markdown:
    failure = shared.first.failure
    if failure is None:
        return EMPTY
    title = fill("It failed in phase {} with:", code(failure.phase))
    message = fence(f"{failure.type}: {failure.message}")
    return page([title, message, _per_stack(shared, lambda cell: _trace(cell.failure or failure))])


def _trace(failure: Failure) -> Markdown:
    whole = details("Traceback", fence(failure.traceback)) if failure.traceback else EMPTY
    return page([_frames(failure), whole])


def _frames(failure: Failure) -> Markdown:
    if not failure.frames:
        return EMPTY
    deepest = reversed(failure.frames[-DEEPEST:])
    return page([titled("Deepest frames, innermost first"), bullets(map(_frame, deepest))])


def _frame(frame: Frame) -> Markdown:
    place = fill("{} in {}", code(f"{frame.file}:{frame.line}"), code(frame.function))
    return fill("{}: {}", place, code(frame.code)) if frame.code else place


def _unstable(cell: CellResult) -> Markdown:
    if not cell.unstable:
        return EMPTY
    return fill("Differs between two runs of this same cell: {}.", codes(cell.unstable))


def _relative(cell: CellResult) -> Markdown:
    if cell.reference is None or not cell.signals:
        return EMPTY
    return fill("Signals, relative to {}:", code(str(cell.reference)))


def _changes(shared: Shared) -> Markdown:
    kinds = {kind for cell in shared.cells for kind in cell.changes}
    ranked = [kind for kind in MOST_TELLING if kind in kinds]
    others = sorted(kinds.difference(MOST_TELLING))
    return page(_change_table(kind, shared) for kind in (*ranked, *others))


def _change_table(kind: str, shared: Shared) -> Markdown:
    """Return one table for all stacks; what changed on some of them alone says on which."""
    stacks: dict[tuple[Markdown, ...], list[str]] = {}
    for cell in shared.cells:
        for change in cell.changes.get(kind, ()):
            stacks.setdefault(_change(change), []).append(cell.cell.stack)
    rows = [
        [*change, "" if len(names) == len(shared.cells) else ", ".join(names)]
        for change, names in stacks.items()
    ]
    name = f"{kind}: {plural(len(rows), 'change')}, which may explain it"
    return folded(name, table(["what", "reference", "candidate", "only on"], rows))


def _change(change: FactChange) -> tuple[Markdown, ...]:
    return code(change.what), code(repr(change.reference)), code(repr(change.candidate))


def _remarks(shared: Shared) -> Markdown:
    notes = _said(shared, lambda cell: map(prose, cell.notes))
    skips = _said(shared, lambda cell: map(_skip, cell.skips))
    return page(
        page([titled(title), bullets(lines)])
        for title, lines in (("Notes", notes), ("Not observed", skips))
        if lines
    )


def _said(shared: Shared, lines: Callable[[CellResult], Iterable[Markdown]]) -> list[Markdown]:
    """Return the lines of all cells; what is said of some stacks alone says of which."""
    stacks: dict[Markdown, list[str]] = {}
    for cell in shared.cells:
        for line in lines(cell):
            stacks.setdefault(line, []).append(cell.cell.stack)
    return [
        line if len(names) == len(shared.cells) else fill("on {}: {}", ", ".join(names), line)
        for line, names in stacks.items()
    ]


def _skip(skip: Skip) -> Markdown:
    return fill("{}: {}", code(skip.what), skip.reason)


def _reproduce(shared: Shared) -> Markdown:
    commands = [cell.reproduce for cell in shared.cells if cell.reproduce]
    if not commands:
        return EMPTY
    return page([titled("To reproduce"), fence("\n".join(commands), "bash")])

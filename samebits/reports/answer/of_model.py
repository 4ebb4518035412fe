"""Answers about models: one for each way in which a model differs, the worst first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from samebits.diagnose.everywhere import is_everywhere
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer.change import change, sizes_beyond_rounding, where
from samebits.reports.answer.releases import are_neighbours, distinct, listed, release
from samebits.reports.answer.remedy import command, remedy
from samebits.reports.answer.side import Side, faults, side
from samebits.reports.stories import (
    EVERY_RELEASE,
    QUIET,
    failure_key,
    group_cells,
    holds,
    is_reference,
)
from samebits.text.lists import grouped

WORST_FIRST = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.UNDECIDED,
    Verdict.NOT_FINISHED,
    Verdict.NOT_OBSERVED,
    Verdict.FIXED,
    Verdict.ROUNDING,
    Verdict.IDENTICAL,
    Verdict.REFERENCE,
    Verdict.ABSENT,
    Verdict.EXPECTED,
)
"""Verdicts as judged, the most severe first."""


class Answer(NamedTuple):
    """What changed in a model, since when, which side is wrong, and what to do: a sentence each."""

    cell: CellResult
    """The newest of the cells that differ in this way, of the first of their rows."""
    stacks: tuple[str, ...]
    """The stacks that differ in this way."""
    variants: tuple[str, ...]
    """The variants that do."""
    change: str
    since: str
    """'' where there is only one release to compare with."""
    where: str
    side: Side
    """Which side is wrong, and why."""
    do: str
    command: str
    """What to run next; '' if nothing is left to ask."""
    before: str
    """The release that it is compared with, such as ``4.57.6``; '' without one."""
    after: str
    """The release of the cell."""

    @property
    def model(self) -> str:
        """The model."""
        return self.cell.cell.model

    @property
    def is_known(self) -> bool:
        """True if the matrix file lists the difference."""
        return self.cell.verdict is Verdict.EXPECTED

    @property
    def start(self) -> str:
        """Since when, for a place that is headed by that word."""
        return self.since.removeprefix("since ")

    @property
    def lines(self) -> list[str]:
        """What is not in the verdict itself, a line each, for JUnit, annotations and issues."""
        named = (("right", self.side.why), ("do", self.do))
        since = [self.since] if self.since else []
        return [self.change, *since, *(f"{name}: {text}" for name, text in named if text)]


def answers(report: Report) -> list[Answer]:
    """Return an answer for each way in which a model differs from its reference, the worst first.

    New differences precede those that the matrix file lists, and rounding is last. A model's worst one precedes the
    second one of any other model. Models that have none are left out.
    """
    joined = [_joined(same, report) for same in grouped(_ways(report.rows), _same_way).values()]
    joined.sort(key=lambda answer: _rank(answer, report))
    first = {answer.model: answer for answer in reversed(joined)}
    return sorted(joined, key=lambda a: (is_quiet(a), a.is_known, a is not first[a.model]))


def answer(report: Report) -> Answer | None:
    """Return the worst answer of a run; None if nothing differs."""
    return next(iter(answers(report)), None)


def of_cell(cell: CellResult, report: Report) -> Answer:
    """Return the answer about one cell."""
    name = cell.cell.model, str(cell.cell.variant)
    row = next(row for row in report.rows if (row.model, row.variant) == name)
    alike = next((way.cells for way in _ways((row,)) if cell in way.cells), (cell,))
    return _answer(cell, tuple(each.cell.stack for each in alike), (row,), report)


def is_quiet(answer: Answer) -> bool:
    """Return True for an answer that needs no action: what differs only rounds."""
    return kind_of(answer.cell) in (Verdict.ROUNDING, Verdict.IDENTICAL)


def only_rounding(ranked: Sequence[Answer]) -> list[str]:
    """Return the models about which every answer is quiet."""
    worse = {answer.model for answer in ranked if not is_quiet(answer)}
    return [*dict.fromkeys(answer.model for answer in ranked if answer.model not in worse)]


def kind_of(cell: CellResult) -> Verdict:
    """Return the verdict that an answer is about: of a known difference its kind."""
    if is_everywhere(cell):
        return Verdict.FAILED
    return cell.verdict if cell.verdict is Verdict.FIXED else cell.judged


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Return rows by their worst verdict, new ones before those that the matrix file lists."""
    return sorted(rows, key=_row_rank)


class _Way(NamedTuple):
    """Cells of one row that differ in the same way."""

    row: Row
    cells: tuple[CellResult, ...]


def _ways(rows: Iterable[Row]) -> Iterator[_Way]:
    for row in rows:
        differing = [cell for cell in row.cells if kind_of(cell) not in QUIET]
        for shared in group_cells(differing, way_of):
            yield _Way(row, shared.cells)


def way_of(cell: CellResult) -> Hashable:
    """Return what cells have in common that differ from their reference in the same way."""
    failure = failure_key(cell)
    causes = _causes(cell)
    signals = tuple(signal.signal for signal in cell.signals if signal.outcome == "differs")
    moved = cell.judged in (Verdict.DIVERGED, Verdict.UNDECIDED)
    figure = cell.figure if moved else ""
    return cell.verdict, cell.judged, failure, causes, signals if moved else (), figure


def _causes(cell: CellResult) -> tuple[Hashable, ...]:
    """Return the findings that explain a verdict, each with the side that has it, whatever its release."""
    return tuple(dict.fromkeys((e.code, e.stack == cell.cell.stack) for e in cell.explained_by))


def _same_way(way: _Way) -> Hashable:
    """Return what rows of one model share that differ in the same way; figures depend on the dtype.

    Rows whose logits differ are no rows whose outputs have another form alone.
    """
    first = way.cells[0]
    causes = _causes(first)
    failure = first.failure and (first.failure.phase.partition(" ")[0], first.failure.type)
    stacks = tuple(cell.cell.stack for cell in way.cells)
    is_beyond = bool(sizes_beyond_rounding(first))
    return way.row.model, first.verdict, first.judged, causes, failure, stacks, is_beyond


def _joined(ways: list[_Way], report: Report) -> Answer:
    """Return the answer about the same difference in several variants of a model."""
    cells = ways[0].cells
    rows = tuple(way.row for way in ways)
    return _answer(cells[-1], tuple(cell.cell.stack for cell in cells), rows, report)


def _answer(
    cell: CellResult, stacks: tuple[str, ...], rows: tuple[Row, ...], report: Report
) -> Answer:
    row = rows[0]
    side_of = side(cell, row, report, stacks)
    reference = cell.reference if cell.reference != cell.cell else None
    return Answer(
        cell,
        stacks,
        tuple(each.variant for each in rows),
        change(cell),
        _since(cell, stacks, row, side_of, report),
        where(cell, report),
        side_of,
        remedy(cell, side_of, rows, report),
        command(cell, _first_stack(cell, stacks[0], row), row, report),
        distinct(reference.stack, report) if reference is not None else "",
        distinct(cell.cell.stack, report),
    )


def _since(
    cell: CellResult, stacks: tuple[str, ...], row: Row, side_of: Side, report: Report
) -> str:
    """Return in which release it begins, and where it ends."""
    if is_everywhere(cell):
        return f"in {EVERY_RELEASE}"
    if is_reference(cell) or len(row.cells) < 2 or cell.judged is Verdict.NOT_FINISHED:
        return ""  # what a machine lacks begins in no release
    present = [c for c in row.cells if c.judged is not Verdict.ABSENT]
    order = [each.cell.stack for each in present]
    first, last = order.index(stacks[0]), order.index(stacks[-1])
    start = release(stacks[0], report)
    before = present[first - 1] if first else None
    again = [each.cell.stack for each in present[last + 1 :] if holds(each)]
    gone = f"; gone in {release(again[0], report)}" if again else ""
    if before is None or not set(order[first : last + 1]) <= set(stacks):
        return f"in {listed([*stacks], report)}{gone}"
    previous = release(before.cell.stack, report)
    is_exact = are_neighbours(before.cell.stack, stacks[0], report)
    since = _begins(present, first, report)
    fixed = f"fixed in {start}" if is_exact else f"fixed {since}"
    wrong = faults(row, report)
    is_fixed = cell.reference is not None and side_of.wrong == cell.reference.stack
    if is_fixed and cell.cell.stack in wrong:
        return f"{since} ({previous} is wrong in another way{gone})"
    if is_fixed and (holds(before) or set(side_of.codes) & {*wrong.get(before.cell.stack, ())}):
        return f"{fixed} ({previous} is wrong)"
    if is_fixed and before.cell.stack in wrong:
        return f"{fixed} ({previous} is wrong in another way{gone})"
    if holds(before):
        return (
            f"{since} ({previous} is the last without it{gone})" if is_exact else f"{since}{gone}"
        )
    if before.judged is Verdict.ROUNDING:
        return f"{since} ({previous} only rounds{gone})"
    onset = _onset(cell, present[:first])
    if onset < first:
        return f"{_begins(present, onset, report)} (in this form {since}{gone})"
    earlier = next(i for i in reversed(range(first)) if not i or holds(present[i - 1]))
    return f"{since} (something else {_begins(present, earlier, report)}{gone})"


def _begins(present: Sequence[CellResult], place: int, report: Report) -> str:
    """Return in which release something begins that the cell at this place is the first to show."""
    stack = present[place].cell.stack
    start = release(stack, report)
    if not place:
        return f"in {start}"
    before = present[place - 1].cell.stack
    is_exact = are_neighbours(before, stack, report)
    return f"since {start}" if is_exact else f"between {release(before, report)} and {start}"


def _onset(cell: CellResult, earlier: Sequence[CellResult]) -> int:
    """Return the place from which on all cells before this one share something that explains it, or its exception."""
    shown = _shown(cell)
    return next(
        (i + 1 for i in reversed(range(len(earlier))) if shown.isdisjoint(_shown(earlier[i]))), 0
    )


def _first_stack(cell: CellResult, stack: str, row: Row) -> str:
    """Return the first stack that shows what a cell does in this form or in another one."""
    present = [c for c in row.cells if c.judged is not Verdict.ABSENT]
    order = [each.cell.stack for each in present]
    return order[_onset(cell, present[: order.index(stack)])] if stack in order else stack


def _shown(cell: CellResult) -> set[Hashable]:
    """Return what explains a cell, and its exception."""
    failure = failure_key(cell)
    return {*_causes(cell), *([failure] if failure is not None else [])}


def _rank(entry: Answer, report: Report) -> tuple[bool, bool, bool, int, bool, bool]:
    """Return what sorts answers: new ones first, then what the newest release shows, then the worst.

    What only rounds comes last, as it needs no action.

    Numbers that differ come before outputs of another form.

    Of exceptions, those in the library come before those in a model's own code, which hit one model.
    """
    newest = next((stack.id for stack in reversed(report.stacks) if stack.failure is None), "")
    return (
        is_quiet(entry),
        entry.is_known,
        newest not in entry.stacks,
        WORST_FIRST.index(kind_of(entry.cell)),
        not sizes_beyond_rounding(entry.cell),
        any(frame.own for frame in (entry.cell.failure.frames if entry.cell.failure else ())),
    )


def _row_rank(row: Row) -> tuple[int, bool]:
    worst = min((WORST_FIRST.index(kind_of(cell)) for cell in row.cells), default=0)
    return worst, all(cell.verdict.passes for cell in row.cells)

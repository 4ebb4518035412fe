"""Stories: rows of one model that differ from the reference in the same way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from samebits.diagnose.everywhere import is_everywhere
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.text.blocks import slug
from samebits.text.lists import grouped
from samebits.text.names import spanned
from samebits.text.numbers import rounded_ulp

QUIET = frozenset({Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ABSENT})
"""Verdicts that need no section: no difference, or no comparison."""

SEVERITY = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.UNDECIDED,
    Verdict.NOT_FINISHED,
    Verdict.NOT_OBSERVED,
    Verdict.FIXED,
)
"""The verdicts that keep a run from passing, the most severe first."""

_OUTCOME_FIELDS = {
    "verdict",
    "judged",
    "rest",
    "unfinished",
    "figure",
    "signals",
    "first",
    "deciding",
    "splits",
    "unstable",
    "expected",
}


EVERY_RELEASE = "every release"
"""Shown instead of the stacks of a failure that is the model's own."""


L = TypeVar("L", bound="Hashable")


class Shared(NamedTuple):
    """Cells that have something in common."""

    cells: tuple[CellResult, ...]

    @property
    def first(self) -> CellResult:
        """The first of these cells."""
        return self.cells[0]

    @property
    def stacks(self) -> tuple[str, ...]:
        """Ids of the stacks of these cells."""
        return tuple(cell.cell.stack for cell in self.cells)


class Story(NamedTuple):
    """Rows of one model that differ from their reference on the same stacks in the same signals."""

    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The heading of the story: ``llama/float32-sdpa, bfloat16-sdpa``."""
        return ", ".join([row_name(self.rows[0]), *(str(row.variant) for row in self.rows[1:])])

    @property
    def anchor(self) -> str:
        """The link to that heading within the same document."""
        return f"#{slug(self.name)}"

    @property
    def model(self) -> str:
        """The model of all rows."""
        return self.rows[0].model

    @property
    def passes(self) -> bool:
        """True if no cell of the story makes the run fail."""
        return all(cell.verdict.passes for row in self.rows for cell in row.cells)

    @property
    def severity(self) -> int:
        """The index of the worst verdict in :data:`SEVERITY`.

        Only a story that does not pass has one.
        """
        verdicts = {cell.verdict for row in self.rows for cell in row.cells}
        return min(map(SEVERITY.index, verdicts.intersection(SEVERITY)))

    def where(self, cells: Iterable[CellResult]) -> str:
        """Return the stacks of some cells of the story.

        Variants are left out if the stacks are the same in all rows.
        """
        stacks: dict[str, list[str]] = {}
        for cell in cells:
            stacks.setdefault(str(cell.cell.variant), []).append(cell.cell.stack)
        lists = {spanned(names) for names in stacks.values()}
        if len(lists) == 1 and len(stacks) == len(self.rows):
            return lists.pop()
        return "; ".join(f"{variant}@{','.join(names)}" for variant, names in stacks.items())


class Trouble(NamedTuple):
    """A verdict of a story that makes the run fail, with the cells of the story's first row."""

    story: Story
    shared: Shared

    @property
    def cells(self) -> list[CellResult]:
        """The cells of all rows of the story with this verdict."""
        verdict = self.shared.first.verdict
        return [cell for row in self.story.rows for cell in row.cells if cell.verdict == verdict]


def verdict_word(cell: CellResult) -> str:
    """Return the verdict; for an expected difference also its kind."""
    if cell.verdict == Verdict.EXPECTED and cell.judged != Verdict.EXPECTED:
        return f"{cell.verdict}, {cell.judged}"
    if cell.rest is Verdict.REFERENCE:
        return f"{cell.verdict}, reference"
    return f"{cell.verdict}, rest {cell.rest}" if cell.rest in _SHOWN_RESTS else cell.verdict


_SHOWN_RESTS = frozenset({Verdict.ROUNDING, Verdict.DIVERGED, Verdict.UNDECIDED})
"""Verdicts on the rest of a cell that are shown next to the verdict on the cell."""


def row_name(row: Row) -> str:
    """Return the name of a row, the beginning of its cells' names: ``llama/float32-sdpa``."""
    return f"{row.model}/{row.variant}"


def holds(cell: CellResult) -> bool:
    """Return True if the cell holds the reference's bits, or is the reference."""
    return cell.judged in (Verdict.REFERENCE, Verdict.IDENTICAL)


def is_reference(cell: CellResult) -> bool:
    """Return True if the cell is the reference of its row, whether it is sound or not."""
    return Verdict.REFERENCE in (cell.judged, cell.rest)


def places(shared: Shared) -> str:
    """Return the stacks of cells that share a verdict.

    A failure that is the same in every release has one phrase instead.
    """
    return EVERY_RELEASE if is_everywhere(shared.first) else ", ".join(shared.stacks)


def is_quiet(row: Row) -> bool:
    """Return True if every stack that knows the model holds the reference's bits."""
    return all(cell.verdict in QUIET for cell in row.cells)


def troubles(report: Report) -> list[Trouble]:
    """Return what makes the run fail, the worst first; equally severe ones in the order of rows."""
    unsorted = [
        Trouble(story, shared)
        for story in stories(report.rows)
        for shared in group_cells(story.rows[0].cells, lambda cell: cell.verdict)
        if not shared.first.verdict.passes
    ]
    return sorted(unsorted, key=lambda trouble: SEVERITY.index(trouble.shared.first.verdict))


def stories(rows: Iterable[Row]) -> list[Story]:
    """Return the stories of the rows that are not quiet.

    Rows of one model that differ in the same way share a story.
    """
    loud = (row for row in rows if not is_quiet(row))
    groups = grouped(loud, lambda row: (row.model, *map(_story_key, row.cells)))
    return [Story(tuple(group)) for group in groups.values()]


def anchors(rows: Iterable[Row]) -> dict[str, str]:
    """Return row -> the link to its story within a document, for the rows that have a story."""
    return {row_name(row): story.anchor for story in stories(rows) for row in story.rows}


def cell_in_short(cell: CellResult) -> str:
    """Return the most important line about a cell: failure, what decides, or headline."""
    if cell.failure and not is_everywhere(cell):
        failure = f"{cell.failure.phase}: {cell.failure.type}: {cell.failure.message}"
        return "; ".join(filter(None, [failure, rest_in_words(cell)]))
    if cell.rest is not None:
        return "; ".join(filter(None, [cell.headline, rest_in_words(cell)]))
    return rounded_ulp(cell.decisive.what if cell.decisive else cell.headline)


def rest_in_words(cell: CellResult) -> str:
    """Return the result of the part that was compared; '' if the verdict already gives it."""
    if cell.judged is Verdict.NOT_FINISHED and cell.rest is None:
        return "nothing was compared"
    if cell.rest is None or cell.judged is Verdict.NOT_OBSERVED:
        return ""
    words = _REST_WORDS.get(cell.rest, f"what was compared: {cell.rest}")
    difference = f" ({rounded_ulp(cell.decisive.what)})" if cell.decisive else ""
    return f"{words}{difference}" if words else ""


_REST_WORDS = {
    Verdict.REFERENCE: "",
    Verdict.IDENTICAL: "what was compared is identical",
    Verdict.ROUNDING: "what was compared differs only by rounding",
    Verdict.DIVERGED: "what was compared diverged",
    Verdict.UNDECIDED: "what was compared differs",
    Verdict.NOT_OBSERVED: "no forward was compared",
    Verdict.FAILED: "the rest could not be compared",
}
"""Verdict -> words for the part of a cell that was compared."""


def _story_key(cell: CellResult) -> Hashable:
    """Return what a cell contributes to its row's story.

    Figures are left out: they differ from dtype to dtype.
    """
    signal = cell.decisive.signal if cell.decisive else ""
    failure = (cell.failure.phase, cell.failure.type) if cell.failure else None
    return cell.cell.stack, cell.verdict, cell.judged, cell.rest, cell.expected, signal, failure


def group_cells(cells: Iterable[CellResult], key: Callable[[CellResult], Hashable]) -> list[Shared]:
    """Return the cells grouped by ``key``; groups are in the order of their first cells."""
    return [Shared(tuple(group)) for group in grouped(cells, key).values()]


def joined_lines(
    shared: Shared, story: Story, lines: Callable[[CellResult], Iterable[L]]
) -> list[tuple[str, L]]:
    """Return the lines of all cells once, each with where it holds; '' if it holds everywhere."""
    cells: dict[L, list[CellResult]] = {}
    for cell in shared.cells:
        for line in lines(cell):
            cells.setdefault(line, []).append(cell)
    return [
        ("" if len(line_cells) == len(shared.cells) else story.where(line_cells), line)
        for line, line_cells in cells.items()
    ]


def failure_key(cell: CellResult) -> Hashable:
    """Return a key that is equal for cells with the same exception; None for one without."""
    failure = cell.failure
    return (failure.phase, failure.type, failure.message) if failure is not None else None


def outcome_key(cell: CellResult) -> str:
    """Return a key that is equal for cells of the same bits, or of the same failure.

    Explanations such as config changes are left out: they differ from release to release while the
    bits are the same.
    """
    # The repr, because it makes NaN equal to NaN.
    return repr((cell.model_dump(include=_OUTCOME_FIELDS), failure_key(cell)))


def since(row: Row, stacks: Iterable[str]) -> str:
    """Return the first of ``stacks`` and which other stacks around it hold the reference's bits.

    Defects come and go between releases, so later stacks that hold the bits again are named.
    """
    bad_stacks = list(stacks)
    order = [cell.cell.stack for cell in row.cells]
    first = order.index(bad_stacks[0])
    good_indexes = [i for i, cell in enumerate(row.cells) if holds(cell)]
    last_good = [order[i] for i in good_indexes if i < first][-1:]
    good_again = [order[i] for i in good_indexes if i > first]
    notes = [f"last good: {last_good[0]}"] if last_good else []
    notes += [f"good again: {', '.join(good_again)}"] if good_again else []
    return f"{bad_stacks[0]} ({'; '.join(notes)})" if notes else bad_stacks[0]

"""Which cells of a row tell the same story, and since which stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.diagnose.everywhere import is_everywhere
from samebits.records.ids import Verdict
from samebits.text.blocks import slug
from samebits.text.numbers import rounded_ulp

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from samebits.records.comparison import CellResult
    from samebits.records.report import Report, Row

QUIET = frozenset({Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ABSENT})
"""Verdicts that need no section: nothing differs, or there is nothing to compare."""

SEVERITY = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.DIFFERS,
    Verdict.NOT_FINISHED,
    Verdict.NOT_OBSERVED,
    Verdict.FIXED,
)
"""The verdicts that keep a run from passing, those that leave the least to use first."""

_OUTCOME = {
    "verdict",
    "judged",
    "rest",
    "unfinished",
    "figure",
    "signals",
    "first",
    "splits",
    "unstable",
    "expected",
}


EVERY = "every release"
"""Stands for the stacks of a failure that is the model's."""


class Shared(NamedTuple):
    """Cells that have something in common."""

    cells: tuple[CellResult, ...]

    @property
    def first(self) -> CellResult:
        """The first of them."""
        return self.cells[0]

    @property
    def stacks(self) -> tuple[str, ...]:
        """Ids of the stacks of these cells."""
        return tuple(cell.cell.stack for cell in self.cells)


class Story(NamedTuple):
    """Rows of one model that part from their reference on the same stacks in the same signals."""

    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """Its heading: ``llama/float32-sdpa, bfloat16-sdpa``."""
        return ", ".join([row_name(self.rows[0]), *(str(row.variant) for row in self.rows[1:])])

    @property
    def anchor(self) -> str:
        """The link to that heading, within the document where it stands."""
        return f"#{slug(self.name)}"

    @property
    def model(self) -> str:
        """The model of all its rows."""
        return self.rows[0].model

    @property
    def passes(self) -> bool:
        """True if nothing in it makes the run fail."""
        return all(cell.verdict.passes for row in self.rows for cell in row.cells)

    @property
    def severity(self) -> int:
        """The place of its worst verdict in :data:`SEVERITY`; for one that does not pass."""
        found = {cell.verdict for row in self.rows for cell in row.cells}
        return min(map(SEVERITY.index, found.intersection(SEVERITY)))

    def where(self, cells: Iterable[CellResult]) -> str:
        """Return the stacks of some of its cells, with variants unless all or the one are meant."""
        stacks: dict[str, list[str]] = {}
        for cell in cells:
            stacks.setdefault(str(cell.cell.variant), []).append(cell.cell.stack)
        lists = {", ".join(names) for names in stacks.values()}
        if len(lists) == 1 and len(stacks) == len(self.rows):
            return lists.pop()
        return "; ".join(f"{variant}@{','.join(names)}" for variant, names in stacks.items())


class Trouble(NamedTuple):
    """One verdict of one story that makes the run fail, with the cells of its first row."""

    story: Story
    shared: Shared


def verdict_word(cell: CellResult) -> str:
    """Return the verdict; of an expected difference also its kind, once the ladder has told it."""
    if cell.verdict == Verdict.EXPECTED and cell.judged in (Verdict.ROUNDING, Verdict.DIVERGED):
        return f"{cell.verdict}, {cell.judged}"
    if cell.rest is Verdict.REFERENCE:
        return f"{cell.verdict}, reference"
    return f"{cell.verdict}, rest {cell.rest}" if cell.rest in _WORTH_SAYING else cell.verdict


_WORTH_SAYING = frozenset({Verdict.ROUNDING, Verdict.DIVERGED, Verdict.DIFFERS})
"""Verdicts on the rest of a cell that stand beside its own."""


def row_name(row: Row) -> str:
    """Return the name of a row as it begins its cells' names: ``llama/float32-sdpa``."""
    return f"{row.model}/{row.variant}"


def holds(cell: CellResult) -> bool:
    """Return True if the cell holds the reference's bits, or is the reference."""
    return cell.judged in (Verdict.REFERENCE, Verdict.IDENTICAL)


def is_reference(cell: CellResult) -> bool:
    """Return True if the others of its row are compared with the cell, be it sound or not."""
    return Verdict.REFERENCE in (cell.judged, cell.rest)


def places(shared: Shared) -> str:
    """Return the stacks of some cells that share a verdict, or that every release does the same."""
    return EVERY if is_everywhere(shared.first) else ", ".join(shared.stacks)


def is_quiet(row: Row) -> bool:
    """Return True if every stack that knows the model holds the reference's bits."""
    return all(cell.verdict in QUIET for cell in row.cells)


def troubles(report: Report) -> list[Trouble]:
    """Return what makes the run fail, the worst first, else in the order of the rows."""
    found = [
        Trouble(story, shared)
        for story in stories(report.rows)
        for shared in sharing(story.rows[0].cells, lambda cell: cell.verdict)
        if not shared.first.verdict.passes
    ]
    return sorted(found, key=lambda trouble: SEVERITY.index(trouble.shared.first.verdict))


def stories(rows: Iterable[Row]) -> list[Story]:
    """Return the rows that have something to tell, those of one model that tell the same joined."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        if not is_quiet(row):
            groups.setdefault((row.model, *map(_plot, row.cells)), []).append(row)
    return [Story(tuple(group)) for group in groups.values()]


def anchors(rows: Iterable[Row]) -> dict[str, str]:
    """Return row -> the link to its story within a document, for the rows that have one."""
    return {row_name(row): story.anchor for story in stories(rows) for row in story.rows}


def told(cell: CellResult) -> str:
    """Return the most telling line about a cell."""
    if cell.failure and not is_everywhere(cell):
        failure = f"{cell.failure.phase}: {cell.failure.type}: {cell.failure.message}"
        return "; ".join(filter(None, [failure, rest(cell)]))
    if cell.rest is not None:
        return "; ".join(filter(None, [cell.headline, rest(cell)]))
    return rounded_ulp(cell.first.what if cell.first else cell.headline)


def rest(cell: CellResult) -> str:
    """Return what came of the part that was compared, '' where the verdict says it."""
    if cell.judged is Verdict.NOT_FINISHED and cell.rest is None:
        return "nothing of it was compared"
    if cell.rest is None or cell.judged is Verdict.NOT_OBSERVED:
        return ""
    words = _REST.get(cell.rest, f"what was compared: {cell.rest}")
    where = f" ({rounded_ulp(cell.first.what)})" if cell.first else ""
    return f"{words}{where}" if words else ""


_REST = {
    Verdict.REFERENCE: "",
    Verdict.IDENTICAL: "what was compared is identical",
    Verdict.ROUNDING: "what was compared differs by rounding alone",
    Verdict.DIVERGED: "what was compared diverged",
    Verdict.DIFFERS: "what was compared differs",
    Verdict.NOT_OBSERVED: "no forward was compared",
    Verdict.FAILED: "what is left could not be compared",
}
"""What is said of the part of a cell that was compared, by its verdict."""


def _plot(cell: CellResult) -> Hashable:
    """Return what a cell contributes to its row's story: no figure, which each dtype has its own."""
    where = cell.first.signal if cell.first else ""
    failure = (cell.failure.phase, cell.failure.type) if cell.failure else None
    return cell.cell.stack, cell.verdict, cell.judged, cell.rest, cell.expected, where, failure


def sharing(cells: Iterable[CellResult], key: Callable[[CellResult], Hashable]) -> list[Shared]:
    """Return the cells grouped by ``key``, groups in the order of their first cells."""
    groups: dict[Hashable, list[CellResult]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return [Shared(tuple(group)) for group in groups.values()]


def outcome(cell: CellResult) -> str:
    """Return a key that is equal for cells of the same bits, or of the same failure.

    Explanations such as config changes are no part of it: they differ from release to release
    while the bits stay.
    """
    failure = cell.failure and (cell.failure.phase, cell.failure.type, cell.failure.message)
    # The repr, because NaN is equal to NaN in it.
    return repr((cell.model_dump(include=_OUTCOME), failure))


def since(row: Row, stacks: Iterable[str]) -> str:
    """Return the first of ``stacks`` and which others, around it, hold the reference's bits.

    Breakage is not monotone over releases, so a later stack that holds them again is named.
    """
    bad = list(stacks)
    order = [cell.cell.stack for cell in row.cells]
    first = order.index(bad[0])
    good = [i for i, cell in enumerate(row.cells) if holds(cell)]
    before = [order[i] for i in good if i < first][-1:]
    after = [order[i] for i in good if i > first]
    notes = [f"last good: {before[0]}"] if before else []
    notes += [f"good again: {', '.join(after)}"] if after else []
    return f"{bad[0]} ({'; '.join(notes)})" if notes else bad[0]

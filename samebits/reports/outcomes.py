"""Which cells of a row tell the same story, and since which stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.words import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from samebits.comparison import CellResult
    from samebits.document import Report, Row

QUIET = frozenset({Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ABSENT})
"""Verdicts that need no section: nothing differs, or there is nothing to compare."""


_OUTCOME = {
    "verdict",
    "judged",
    "figure",
    "signals",
    "first",
    "splits",
    "unstable",
    "expected",
}


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


class Trouble(NamedTuple):
    """One verdict of one row that makes the run fail."""

    row: Row
    shared: Shared


def row_name(row: Row) -> str:
    """Return the name of a row as it begins its cells' names: ``llama/float32-sdpa``."""
    return f"{row.model}/{row.variant}"


def holds(cell: CellResult) -> bool:
    """Return True if the cell holds the reference's bits, or is the reference."""
    return cell.judged in (Verdict.REFERENCE, Verdict.IDENTICAL)


def is_quiet(row: Row) -> bool:
    """Return True if every stack that knows the model holds the reference's bits."""
    return all(cell.verdict in QUIET for cell in row.cells)


def troubles(report: Report) -> list[Trouble]:
    """Return what makes the run fail, in the order of the rows."""
    return [
        Trouble(row, shared)
        for row in report.rows
        for shared in sharing(row.cells, lambda cell: cell.verdict)
        if not shared.first.verdict.passes
    ]


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
    notes = [f"{before[0]} is the last good one"] if before else []
    notes += [f"good again in {', '.join(after)}"] if after else []
    return f"{bad[0]} ({'; '.join(notes)})" if notes else bad[0]

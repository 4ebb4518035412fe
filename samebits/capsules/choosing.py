"""For which cells is a capsule made: one for each model and candidate stack, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from samebits.records.ids import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId

Scope = Literal["none", "failing", "all"]
"""failing: cells that make the run fail. all: expected and rounding differences, too."""

MOST = 8
"""Capsules that nobody asked for; each takes the time of two imports of transformers and more."""

_STANDS_OUT = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.DIFFERS,
    Verdict.ROUNDING,
)


class Chosen(NamedTuple):
    """The cells that get one, and those that would, if there were no limit."""

    cells: tuple[CellId, ...]
    left_out: tuple[CellId, ...]


def chosen(results: Iterable[CellResult], scope: Scope) -> Chosen:
    """Choose from results whose verdicts are the matrix file's.

    A cell whose difference is fixed shows nothing, one without a reference has no other side, and one
    that did not finish would not finish again.
    """
    worst = sorted(
        (result for result in results if _wanted(result, scope)),
        key=lambda result: _STANDS_OUT.index(result.judged),
    )
    first: dict[tuple[str, str], CellId] = {}
    for result in worst:
        first.setdefault((result.cell.model, result.cell.stack), result.cell)
    cells = tuple(first.values())
    most = len(cells) if scope == "all" else MOST
    return Chosen(cells[:most], cells[most:])


def _wanted(result: CellResult, scope: Scope) -> bool:
    if scope == "none" or result.judged not in _STANDS_OUT:
        return False
    if result.reference in {None, result.cell} or result.unfinished is not None:
        return False
    return scope == "all" or not result.verdict.passes

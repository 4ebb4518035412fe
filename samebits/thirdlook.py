"""The third look: which cells climb the precision ladder, and which verdict that gives them.

The first look compares bytes, the second fetches values that differ, and the third asks what
kind of difference it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.laddering.asking import asks
from samebits.laddering.judge import ladder
from samebits.laddering.rule import is_left_over
from samebits.words import Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from samebits.capture import Capture
    from samebits.compare import TensorSource
    from samebits.comparison import CellResult
    from samebits.ladder import Kind, Ladder, LadderFile
    from samebits.laddering.asking import Ask
    from samebits.words import CellId

    Files = tuple[LadderFile, LadderFile]
    Pair = tuple[Capture, Capture]
    Climb = Callable[[Mapping[CellId, list[Ask]]], Awaitable[Mapping[CellId, list[LadderFile]]]]

VERDICTS: dict[Kind, Verdict] = {
    "rounding": Verdict.ROUNDING,
    "diverged": Verdict.DIVERGED,
    "undecided": Verdict.DIFFERS,
    "same": Verdict.DIFFERS,
}


async def third_look(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    values: TensorSource,
    climb: Climb,
) -> list[CellResult]:
    """Return the results with the verdict of the ladder on every cell that differs.

    A reference that several cells are compared with climbs once for all that ask it the same.
    """
    pairs = {
        found.cell: (runs[found.reference][0], runs[found.cell][0])
        for found in results
        if found.judged == Verdict.DIFFERS and found.reference is not None and found.signals
    }
    by_cell = {found.cell: found for found in results}
    asked = {
        cell: both
        for cell, (one, other) in pairs.items()
        if (both := asks(one, other, by_cell[cell].signals, values)) is not None
    }

    def said(cell: CellId, files: Files | None) -> Ladder:
        found = by_cell[cell]
        return ladder(*pairs[cell], found.signals, found.splits, values, files)

    files = await _climbed(pairs, asked, climb)
    told = {cell: said(cell, files.get(cell)) for cell in pairs}
    again = {
        cell: tuple(ask.model_copy(update={"tables": True}) for ask in both)
        for cell, both in asked.items()
        if is_left_over(told[cell])
    }
    for cell, found in (await _climbed(pairs, again, climb)).items():
        anew = said(cell, found)
        if anew.kind == "rounding":
            told[cell] = anew.model_copy(update={"notes": (TABLES, *anew.notes)})
    return [with_ladder(r, told[r.cell]) if r.cell in told else r for r in results]


TABLES = "the tables that the models compute when they are made were computed again in float64"


async def _climbed(
    pairs: Mapping[CellId, Pair], asked: Mapping[CellId, tuple[Ask, ...]], climb: Climb
) -> dict[CellId, Files]:
    """Return what both cells of every pair that is asked left; each asked the same once."""
    wanted: dict[CellId, list[Ask]] = {}
    for cell, both in asked.items():
        for of, ask in zip((pairs[cell][0].cell, cell), both, strict=True):
            if ask not in wanted.setdefault(of, []):
                wanted[of].append(ask)
    left = await climb(wanted) if wanted else {}

    def file(cell: CellId, ask: Ask) -> LadderFile:
        return left[cell][wanted[cell].index(ask)]

    return {
        cell: (file(pairs[cell][0].cell, both[0]), file(cell, both[1]))
        for cell, both in asked.items()
    }


def with_ladder(found: CellResult, said: Ladder) -> CellResult:
    """Return a result with the verdict that the ladder gives it."""
    verdict = VERDICTS[said.kind]
    return found.model_copy(update={"verdict": verdict, "judged": verdict, "ladder": said})

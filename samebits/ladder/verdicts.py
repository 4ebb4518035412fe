"""The third look: which cells climb the precision ladder, and which verdict that gives them.

The first look compares bytes, the second fetches values that differ, and the third asks what
kind of difference it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.outcome import ran_forward
from samebits.compare.pair import ended
from samebits.compare.phases import lack
from samebits.ladder.asking import asks
from samebits.ladder.judge import ladder
from samebits.ladder.rule import is_left_over
from samebits.records.capture import Unfinished
from samebits.records.ids import Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from samebits.compare.signals import TensorSource
    from samebits.ladder.asking import Ask
    from samebits.records.capture import Capture, Failure
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId
    from samebits.records.ladder import Kind, Ladder, LadderFile

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
        if differs(found) and found.reference is not None and found.signals
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
        elif _gone(found):
            files[cell] = found
    return [
        with_ladder(r, told[r.cell], gone=_gone(files.get(r.cell))) if r.cell in told else r
        for r in results
    ]


def differs(found: CellResult) -> bool:
    """Return True if a cell holds other bytes and what kind of difference it is was not decided."""
    return Verdict.DIFFERS in (found.judged, found.rest)


def _gone(files: Files | None) -> str:
    """Return why the machine, and not the model, kept a cell from the ladder; '' if it did not."""
    failures = (file.failure for file in files or ())
    short = next((f for f in failures if f is not None and _is_the_machine(f)), None)
    return f"{short.type}: {short.in_short}" if short is not None else ""


def _is_the_machine(failure: Failure) -> bool:
    return failure.may_be_the_machine or failure.phase in {"process", "memory"}


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


def with_ladder(found: CellResult, said: Ladder, *, gone: str = "") -> CellResult:
    """Return a result with the verdict that the ladder gives it, or gives what it observed.

    ``gone`` is why the machine ended the ladder: then it says nothing of the kind of difference.
    """
    verdict = VERDICTS[said.kind]
    undecided = gone if verdict is Verdict.DIFFERS else ""
    if found.judged is not Verdict.DIFFERS:
        if undecided:
            return found.model_copy(update={"notes": (*found.notes, f"{NOT_DECIDED}: {undecided}")})
        return found.model_copy(update={"rest": verdict, "ladder": said})
    if undecided:
        return not_decided(found, PHASE, undecided)
    if verdict is Verdict.ROUNDING and not ran_forward(found.signals):
        unfed = {"rest": verdict, "ladder": said}
        verdict = Verdict.NOT_OBSERVED
        return found.model_copy(update={"verdict": verdict, "judged": verdict, **unfed})
    return found.model_copy(update={"verdict": verdict, "judged": verdict, "ladder": said})


PHASE = "third look"
NOT_DECIDED = "which kind of difference it is was not decided"


def not_decided(found: CellResult, phase: str, why: str) -> CellResult:
    """Return a cell that differs, without a verdict on the kind: the look at it did not finish."""
    return found.model_copy(
        update={
            "verdict": Verdict.NOT_FINISHED,
            "judged": Verdict.NOT_FINISHED,
            "rest": Verdict.DIFFERS if found.judged is Verdict.DIFFERS else None,
            "ladder": None,
            "unfinished": Unfinished(phase=phase, reason=f"{NOT_DECIDED}: {why}"),
            "headline": f"not finished: {NOT_DECIDED}: {why}",
        }
    )


def unmeasured(
    found: CellResult, again: Mapping[CellId, Sequence[Capture]], gone: Collection[CellId]
) -> CellResult:
    """Return a result whose second look did not finish as one that is not finished.

    ``again`` are the runs of the second look, ``gone`` the cells of which values are still missing.
    """
    sides = [cell for cell in (found.reference, found.cell) if cell is not None and cell in gone]
    lacks = [lack(run, twin) for cell in sides for run, twin in _twins(again.get(cell, ()))]
    ended_early = next((where for where in lacks if where is not None), None)
    undecided = found.judged is Verdict.DIFFERS or (
        found.judged is Verdict.FAILED and found.failure is None
    )
    if ended_early is None or not undecided:
        return found
    return not_decided(found, "second look", ended(ended_early))


def _twins(runs: Sequence[Capture]) -> list[tuple[Capture, Capture]]:
    return list(zip(runs, reversed(runs), strict=True)) if len(runs) == 2 else []

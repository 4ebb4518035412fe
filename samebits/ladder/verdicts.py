"""The third look: the cells that get the precision ladder, and the verdict that it gives them.

The first look compares bytes, the second fetches values that differ, and the third decides the kind
of a difference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from samebits.compare.outcome import ran_forward
from samebits.compare.pair import ended
from samebits.compare.phases import incomplete_at
from samebits.ladder.asking import Ask, asks, is_repeated, merged, whole, without_known
from samebits.ladder.judge import informing_steps, ladder
from samebits.ladder.rule import is_left_over, lacks_float32
from samebits.records.capture import Capture, Failure, Unfinished
from samebits.records.ids import CellId, Verdict

if TYPE_CHECKING:
    from samebits.compare.signals import TensorSource
    from samebits.records.comparison import CellResult, SignalComparison
    from samebits.records.ladder import Kind, Ladder, LadderFile, LadderStep

    Files = tuple[LadderFile, LadderFile]
    Pair = tuple[Capture, Capture]
    RunLadder = Callable[[Mapping[CellId, list[Ask]]], Awaitable[Mapping[CellId, list[LadderFile]]]]

VERDICTS: dict[Kind, Verdict] = {
    "rounding": Verdict.ROUNDING,
    "diverged": Verdict.DIVERGED,
    "undecided": Verdict.UNDECIDED,
    "same": Verdict.UNDECIDED,
}


async def judge_by_ladder(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    values: TensorSource,
    climb: RunLadder,
    *,
    deep: bool = False,
) -> list[CellResult]:
    """Return the results with the ladder's verdict on every cell that differs.

    A reference of several cells runs one job for all that need the same numbers. With ``deep``
    every prompt is decoded on every rung, even if its decodes are equal byte for byte.
    """
    pairs = {
        result.cell: (runs[result.reference][0], runs[result.cell][0])
        for result in results
        if (differs(result) or _informs(result)) and result.reference is not None and result.signals
    }
    ladders = _Ladders({result.cell: result for result in results}, pairs, values, climb)
    await ladders.climb_first(deep=deep)
    await ladders.climb_with_float32()
    await ladders.climb_with_tables()
    return [ladders.applied(result) for result in results]


class _Ladders:
    """The ladders of the cells that differ, climbed in up to three rounds.

    ``pairs`` has the captures of reference and candidate of each cell that differs, or whose probes
    that only inform do. The second round adds float32 and the third the tables of the construction,
    each for the cells that the round before leaves open.
    """

    def __init__(
        self,
        results: Mapping[CellId, CellResult],
        pairs: Mapping[CellId, Pair],
        values: TensorSource,
        climb: RunLadder,
    ) -> None:
        self._results = results
        self._pairs = pairs
        self._values = values
        self._climb = climb
        self._asks: dict[CellId, tuple[Ask, Ask]] = {}
        self._files: dict[CellId, Files] = {}
        self._steps: dict[CellId, tuple[LadderStep, ...]] = {}
        self._ladders: dict[CellId, Ladder] = {}

    async def climb_first(self, *, deep: bool) -> None:
        """Climb with what the cells differ in; with ``deep`` with every prompt and in float32."""
        for cell, (reference, candidate) in self._pairs.items():
            compared = _compared(self._results[cell])
            if (both := asks(reference, candidate, compared, self._values)) is not None:
                self._asks[cell] = (
                    _with((whole(both[0]), whole(both[1])), float32=True) if deep else both
                )
        self._files = await self._computed(self._asks)
        for cell, pair in self._pairs.items():
            self._steps[cell] = informing_steps(*pair, self._values, self._files.get(cell))
            if differs(self._results[cell]):
                self._ladders[cell] = self._judged(cell, self._files.get(cell))

    async def climb_with_float32(self) -> None:
        """Climb again in float32 where the first climb shows no rounding without it."""
        more = {
            cell: _with(both, float32=True)
            for cell, both in self._asks.items()
            if cell in self._ladders and lacks_float32(self._ladders[cell], self._files[cell])
        }
        self._asks |= more
        for cell, files in (await self._computed(more)).items():
            self._ladders[cell], self._files[cell] = self._judged(cell, files), files

    async def climb_with_tables(self) -> None:
        """Climb again with tables computed in float64 where a difference is left over.

        A climb that ends with rounding replaces the ladder. One that the machine stopped leaves the
        kind undecided.
        """
        more = {
            cell: _with(both, tables=True)
            for cell, both in self._asks.items()
            if cell in self._ladders and is_left_over(self._ladders[cell])
        }
        for cell, files in (await self._computed(more)).items():
            second = self._judged(cell, files)
            if second.kind == "rounding":
                self._ladders[cell] = second.model_copy(update={"notes": (TABLES, *second.notes)})
            elif _machine_reason(files):
                self._files[cell] = files

    def applied(self, result: CellResult) -> CellResult:
        """Return a result with its ladder's verdict, and with the steps that only inform."""
        cell = result.cell
        result = result.model_copy(update={"informing_steps": self._steps.get(cell, ())})
        if cell not in self._ladders:
            return result
        return with_ladder(result, self._ladders[cell], gone=_machine_reason(self._files.get(cell)))

    def _judged(self, cell: CellId, files: Files | None) -> Ladder:
        result = self._results[cell]
        return ladder(*self._pairs[cell], result.signals, result.splits, self._values, files)

    async def _computed(self, more: Mapping[CellId, tuple[Ask, Ask]]) -> dict[CellId, Files]:
        return await _ladder_files(self._pairs, more, self._values, self._climb)


def _compared(result: CellResult) -> tuple[SignalComparison, ...]:
    return (*result.signals, *result.informing)


def _informs(result: CellResult) -> bool:
    """Return True if a probe of the user's differs that only informs."""
    return any(signal.outcome == "differs" for signal in result.informing)


def differs(result: CellResult) -> bool:
    """Return True if the bytes of a cell differ and the kind of the difference is undecided."""
    return Verdict.UNDECIDED in (result.judged, result.rest)


def _machine_reason(files: Files | None) -> str:
    """Return why the machine, not the model, stopped the ladder; '' if it did not."""
    failures = (file.failure for file in files or ())
    short = next((f for f in failures if f is not None and _is_the_machine(f)), None)
    return short.in_words if short is not None else ""


def _is_the_machine(failure: Failure) -> bool:
    return failure.may_be_the_machine or failure.phase in {"process", "memory"}


TABLES = "tables that a model computes at construction were computed again in float64"


def _with(asks: tuple[Ask, Ask], **changes: bool) -> tuple[Ask, Ask]:
    reference, candidate = asks
    return reference.model_copy(update=changes), candidate.model_copy(update=changes)


async def _ladder_files(
    pairs: Mapping[CellId, Pair],
    jobs: Mapping[CellId, tuple[Ask, Ask]],
    values: TensorSource,
    climb: RunLadder,
) -> dict[CellId, Files]:
    """Return what both cells of every pair computed.

    The jobs of one cell are merged. A job whose decodes do not come out as in the cell's own run is
    repeated with all prompts: one that was left out leaves a state that the others depend on.
    """
    captures = {side.cell: side for pair in pairs.values() for side in pair}
    asks: dict[CellId, list[Ask]] = {}
    for cell, pair_jobs in jobs.items():
        for side, ask in zip(pairs[cell], pair_jobs, strict=True):
            asks.setdefault(side.cell, []).append(ask)
    planned = {
        cell: [without_known(job, captures[cell], values) for job in merged(cell_asks)]
        for cell, cell_asks in asks.items()
    }
    files = await _climbed(planned, climb)
    stateful = {
        cell: [
            whole(job)
            for job, file in zip(cell_jobs, files[cell], strict=True)
            if not is_repeated(file, captures[cell], job, values)
        ]
        for cell, cell_jobs in planned.items()
    }
    repeated = await _climbed({cell: again for cell, again in stateful.items() if again}, climb)
    for cell, again in repeated.items():
        files[cell] = [
            again[stateful[cell].index(whole(job))] if whole(job) in stateful[cell] else file
            for job, file in zip(planned[cell], files[cell], strict=True)
        ]
    results = {cell: iter(cell_files) for cell, cell_files in files.items()}
    return {
        cell: (next(results[pairs[cell][0].cell]), next(results[pairs[cell][1].cell]))
        for cell in jobs
    }


async def _climbed(
    asks: Mapping[CellId, list[Ask]], climb: RunLadder
) -> dict[CellId, list[LadderFile]]:
    """Return the result of each job of each cell; equal jobs run once."""
    distinct: dict[CellId, list[Ask]] = {}
    for cell, cell_asks in asks.items():
        for ask in cell_asks:
            if ask not in distinct.setdefault(cell, []):
                distinct[cell].append(ask)
    files = await climb(distinct) if distinct else {}
    return {
        cell: [files[cell][distinct[cell].index(ask)] for ask in cell_asks]
        for cell, cell_asks in asks.items()
    }


def with_ladder(result: CellResult, ladder_result: Ladder, *, gone: str = "") -> CellResult:
    """Return a result with the ladder's verdict, on the cell or on the rest of it.

    ``gone`` is why the machine stopped the ladder: then the kind of difference stays undecided.
    """
    verdict = VERDICTS[ladder_result.kind]
    undecided = gone if verdict is Verdict.UNDECIDED else ""
    if result.judged is not Verdict.UNDECIDED:
        if undecided:
            return result.model_copy(
                update={"notes": (*result.notes, f"{NOT_DECIDED}: {undecided}")}
            )
        return result.model_copy(update={"rest": verdict, "ladder": ladder_result})
    if undecided:
        return not_decided(result, PHASE, undecided)
    if verdict is Verdict.ROUNDING and not ran_forward(result.signals):
        update = {"rest": verdict, "ladder": ladder_result}
        verdict = Verdict.NOT_OBSERVED
        return result.model_copy(update={"verdict": verdict, "judged": verdict, **update})
    return result.model_copy(
        update={"verdict": verdict, "judged": verdict, "ladder": ladder_result}
    )


PHASE = "float64 check"
NOT_DECIDED = "the kind of the difference was not decided"


def not_decided(result: CellResult, phase: str, cause: str) -> CellResult:
    """Return a cell that differs, without a verdict on the kind: the look did not finish."""
    reason = f"{NOT_DECIDED}: {cause}"
    return result.model_copy(
        update={
            "verdict": Verdict.NOT_FINISHED,
            "judged": Verdict.NOT_FINISHED,
            "rest": Verdict.UNDECIDED if result.judged is Verdict.UNDECIDED else None,
            "ladder": None,
            "unfinished": Unfinished(phase=phase, reason=reason),
            "headline": f"not finished: {reason}",
            "open_reason": reason,
        }
    )


def unmeasured(
    result: CellResult, again: Mapping[CellId, Sequence[Capture]], gone: Collection[CellId]
) -> CellResult:
    """Return a result marked as not finished if its second look did not finish.

    ``again`` are the runs of the second look, ``gone`` the cells whose values are still missing.
    """
    sides = [cell for cell in (result.reference, result.cell) if cell is not None and cell in gone]
    gaps = [incomplete_at(run, twin) for cell in sides for run, twin in _twins(again.get(cell, ()))]
    ended_early = next((gap for gap in gaps if gap is not None), None)
    undecided = result.judged is Verdict.UNDECIDED or (
        result.judged is Verdict.FAILED and result.failure is None
    )
    if ended_early is None or not undecided:
        return result
    return not_decided(result, "second look", ended(ended_early))


def _twins(runs: Sequence[Capture]) -> list[tuple[Capture, Capture]]:
    return list(zip(runs, reversed(runs), strict=True)) if len(runs) == 2 else []

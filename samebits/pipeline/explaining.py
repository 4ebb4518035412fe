"""What a run asks of cells that differ: the ladder, traces, grafts; and how it is shown while it runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from samebits.grafts.questions import GraftQuestions
from samebits.jobs import graft, ladder, trace
from samebits.jobs.common import ReadyPair
from samebits.jobs.lab import Lab
from samebits.ladder.asking import Ask
from samebits.pipeline.scheduler import Scheduler
from samebits.records.graft import Graft
from samebits.records.ids import CellId
from samebits.records.ladder import LadderFile
from samebits.records.trace import Cause
from samebits.text.numbers import plural
from samebits.trace.question import TraceRequest


class OfPair(Protocol):
    """What is asked of a cell and of its reference."""

    @property
    def reference(self) -> CellId:
        """The reference."""


Q = TypeVar("Q", bound=OfPair)
T = TypeVar("T")


class Explaining:
    """Asks the cells of a run for what explains a difference."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lab = scheduler.lab

    async def climb(
        self, questions: Mapping[CellId, Iterable[Ask]]
    ) -> dict[CellId, list[LadderFile]]:
        """Run cells on the precision ladder, one job for each question about a cell."""

        async def of_cell(cell: CellId, ask: Ask) -> LadderFile:
            return await ladder.climb(self._lab, await self._scheduler.ready(cell), ask)

        jobs = [(cell, ask) for cell, asks in questions.items() for ask in asks]
        description = f"{plural(len(questions), 'run')} again in float64"
        files = await self._scheduler.all(
            "float64 check", description, [of_cell(cell, ask) for cell, ask in jobs]
        )
        by_cell: dict[CellId, list[LadderFile]] = {}
        for (cell, _), file in zip(jobs, files, strict=True):
            by_cell.setdefault(cell, []).append(file)
        return by_cell

    async def causes(self, requests: Mapping[CellId, TraceRequest]) -> dict[CellId, Cause | str]:
        """Return where cells start to differ from their references, or why no trace shows it."""
        description = f"where {plural(len(requests), 'difference')} begins, operation by operation"
        return await self._of_pairs("causes", description, requests, trace.cause)

    async def grafts(self, requests: Mapping[CellId, GraftQuestions]) -> dict[CellId, Graft | str]:
        """Return which pieces of the references restore cells' bits, or why none was tried."""
        description = f"which module restores the old result in {plural(len(requests), 'run')}"
        return await self._of_pairs("grafts", description, requests, graft.graft)

    async def _of_pairs(
        self,
        phase: str,
        description: str,
        questions: Mapping[CellId, Q],
        explain: Callable[[Lab, ReadyPair, Q], Coroutine[Any, Any, T]],
    ) -> dict[CellId, T]:
        async def of_cell(cell: CellId, question: Q) -> T:
            pair = await self._scheduler.pair(question.reference, cell)
            return await explain(self._lab, pair, question)

        jobs = {cell: of_cell(cell, question) for cell, question in questions.items()}
        return await self._scheduler.each(phase, description, jobs)

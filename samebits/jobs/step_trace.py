"""Runner of traced training steps, which locate where the steps of a pair start to differ."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from samebits.base.redaction import without_folders
from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import LimitedStore, StepTraceJob, StepTracing
from samebits.records.step_trace import StepTrace
from samebits.trace.step import origin

if TYPE_CHECKING:
    from pathlib import Path

    from samebits.jobs.cache import JobCache
    from samebits.jobs.trace import TracedCell, TracedModel
    from samebits.records.step_trace import Rung, StepOrigin
    from samebits.training.question import StepQuestion


class StepTracer:
    """Traces training steps; a cell that is in several pairs is traced once for each batch."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache
        self._running: dict[Path, asyncio.Task[StepTrace | None]] = {}

    async def origin(
        self,
        subject: TracedModel,
        reference: TracedCell,
        candidate: TracedCell,
        question: StepQuestion,
    ) -> StepOrigin | str:
        """Return the first operation of a step that differs, or why no trace shows it.

        Rounding is left out by float64. The own bits are asked only where nothing is rounding.
        """
        try:
            first = await self._at((subject, reference, candidate), question, "float64")
            if not isinstance(first, str) or not question.no_rounding:
                return first
            return await self._at((subject, reference, candidate), question, "own")
        except Exception as error:  # noqa: BLE001  a failed explanation must not change a finding
            message = without_folders(f"{type(error).__name__}: {error}")
            return f"the traces could not be joined: {message}"

    async def _at(
        self,
        pair: tuple[TracedModel, TracedCell, TracedCell],
        question: StepQuestion,
        rung: Rung,
    ) -> StepOrigin | str:
        subject, *sides = pair
        tracing = StepTracing(
            batch=question.batch,
            backward=question.backward,
            rung=rung,
            large=subject.model.large,
            result="",
        )
        reference, candidate = await asyncio.gather(
            *(self._trace(subject, side, tracing) for side in sides)
        )
        if reference is None or candidate is None:
            return "a trace was not written"
        return await asyncio.to_thread(origin, reference, candidate, question)

    async def _trace(
        self, subject: TracedModel, traced: TracedCell, tracing: StepTracing
    ) -> StepTrace | None:
        path = self._path(subject, traced, tracing)
        if path not in self._running:
            job = CachedJob(
                path,
                _FORM,
                subject.checkpoint,
                lambda written: self._job(subject, traced, tracing, written),
                unrepeatable=f"{traced.cell} left no trace, or failed for a reason that may be the machine",
                cell=traced.cell,
            )
            result = self._cache.result(job, traced.process)
            self._running[path] = asyncio.create_task(result)
        return await asyncio.shield(self._running[path])

    def _path(self, subject: TracedModel, traced: TracedCell, tracing: StepTracing) -> Path:
        cell = traced.cell
        facts = {
            **follows_from(cell, subject.model, subject.checkpoint, traced.stack),
            "step": tracing.model_dump(mode="json"),
        }
        return self._cache.path_of_cell("step-traces", cell, facts)

    def _job(
        self, subject: TracedModel, traced: TracedCell, tracing: StepTracing, written: Path
    ) -> StepTraceJob:
        return StepTraceJob(
            **job_of(traced.cell, subject.model, subject.checkpoint, written),
            store=LimitedStore(root=str(self._cache.root), limit=0),
            step=tracing.model_copy(update={"result": str(written)}),
        )


_FORM = ResultForm(StepTrace, is_repeatable, lambda _: iter(()))

"""One way to ask something of a cell, whatever the kind of job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from samebits.jobs.cache import CachedJob, JobCache
from samebits.jobs.common import ReadyCell, follows_from, job_of, model_of
from samebits.jobs.records import Task
from samebits.records.capture import Failure
from samebits.records.ids import CellId
from samebits.records.kinds import CellKind, F
from samebits.records.result import CellFile
from samebits_wire.jobs import QuestionJob

Functions = dict[str, set[int]]
"""File of transformers -> first lines of functions."""


class Lab:
    """Asks cells; what is asked is a task of a kind."""

    def __init__(self, cache: JobCache) -> None:
        self.cache = cache
        self._of_several: dict[Path, asyncio.Task[CellFile | Failure]] = {}
        self.at_close: list[Callable[[], None]] = []
        """What questions do when the run ends."""
        self.entered: dict[CellId, Functions] = {}
        """Cell -> the functions that its jobs entered, of those whose answers are compared."""
        self.aside: dict[CellId, Functions] = {}
        """Cell -> the functions that jobs entered which ended with an exception."""

    def close(self) -> None:
        """Let questions remove what no later run may use."""
        for function in self.at_close:
            function()

    def path(self, kind: CellKind[F], task: Task, ready: ReadyCell) -> Path:
        """Return the path of the answer, named after everything that determines it."""
        facts = {**follows_from(ready), kind.name: task.facts()}
        return self.cache.path_of_cell(kind.folder, ready.cell, facts)

    async def ask(self, kind: CellKind[F], task: Task, ready: ReadyCell) -> F | Failure:
        """Return the answer of a cell, cached or new, or why its job left none."""
        path = self.path(kind, task, ready)
        job = CachedJob(
            path,
            kind.record,
            ready.checkpoint,
            lambda written: self._job(kind, task, ready, written),
            unrepeatable=f"{ready.cell} {kind.missing}, or failed for a reason that may be the machine",
            row=str(ready.cell) if kind.of_row else "",
            belongs=lambda answer: answer.cell == ready.cell,
        )
        if not kind.of_several:
            result = await self.cache.result(job, ready.process)
            return result if isinstance(result, Failure) else self.counted(result)
        if path not in self._of_several:
            self._of_several[path] = asyncio.create_task(self.cache.result(job, ready.process))
        answer = await asyncio.shield(self._of_several[path])
        assert isinstance(answer, (kind.record, Failure))
        return answer

    def counted(self, answer: F) -> F:
        """Return an answer without the functions that its job entered, which count for its cell."""
        by_cell = self.entered if answer.failure is None else self.aside
        of_cell = by_cell.setdefault(answer.cell, {})
        for file, lines in answer.entered.items():
            of_cell.setdefault(file, set()).update(lines)
        return answer.model_copy(update={"entered": {}}) if answer.entered else answer

    def _job(self, kind: CellKind[F], task: Task, ready: ReadyCell, written: Path) -> QuestionJob:
        limit = kind.limit if task.stores else 0
        return {
            **job_of(ready, written),
            "kind": kind.name,
            "model": model_of(ready.model, ready.checkpoint),
            "store": {"root": str(self.cache.root), "limit": limit},
            "task": task.model_copy(update={"result": str(written)}).as_json(),
        }

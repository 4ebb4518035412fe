"""The questions of a run that have jobs of their own, asked one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from samebits.pipeline.checkpoints import BuildFailed
from samebits.questions import questions
from samebits.questions.question import RowName
from samebits.stacks.packages import ExtendedStack, PackagesError

if TYPE_CHECKING:
    from samebits.jobs.common import ReadyCell, ReadyPair
    from samebits.jobs.lab import Functions
    from samebits.jobs.records import Options
    from samebits.matrix.plan import PlannedRow
    from samebits.matrix.spec import ModelSpec
    from samebits.pipeline.scheduler import Scheduler
    from samebits.questions.question import ByRow
    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId
    from samebits.records.question import Answer

K = TypeVar("K")
T = TypeVar("T")
Answers = dict[str, "ByRow"]
"""Question -> row -> answer."""


class ComparedRun:
    """A run whose cells are compared, as questions use it (samebits.questions.question.Run)."""

    def __init__(
        self,
        scheduler: Scheduler,
        results: Iterable[CellResult],
        runs: Mapping[CellId, tuple[Capture, Capture]] | None = None,
    ) -> None:
        scope = scheduler.scope
        self.matrix, self.plan, self.store, self.lab = (
            scope.matrix,
            scope.plan,
            scope.store,
            scheduler.lab,
        )
        self.results: Mapping[CellId, CellResult] = {result.cell: result for result in results}
        self.answers: Answers = {}
        self._scheduler = scheduler
        self._runs = runs or {}

    def entered(self, cells: Iterable[CellId], *, aside: bool = False) -> Functions:
        """Return the functions of transformers that checks of cells entered, compared ones or others."""
        entered: Functions = {}
        of_jobs = self.lab.aside if aside else self.lab.entered
        for cell in cells:
            capture = self.capture(cell)
            is_meant = capture is not None and (capture.status == "complete") is not aside
            captured = capture.entered if capture is not None and is_meant else {}
            for file, lines in (*captured.items(), *of_jobs.get(cell, {}).items()):
                entered.setdefault(file, set()).update(lines)
        return entered

    def capture(self, cell: CellId) -> Capture | None:
        """Return the capture of run a of a cell; None if there is none."""
        return self._runs[cell][0] if cell in self._runs else None

    def capture_key(self, ready: ReadyCell) -> str:
        """Return the digest of everything that determines the captures of a cell."""
        return self._scheduler.cells.folder(ready).name

    def has_stack(self, cell: CellId) -> bool:
        """Return True if the stack of a cell, and the packages of its model, are installed."""
        return self._scheduler.stack_of(cell) is not None

    async def ready(self, cell: CellId) -> ReadyCell | None:
        """Return a cell for a job, once its checkpoint is there; None if it has none."""
        try:
            return await self._scheduler.ready(cell)
        except BuildFailed:
            return None

    async def pair(self, reference: CellId, candidate: CellId) -> ReadyPair:
        """Return two cells that ran."""
        return await self._scheduler.pair(reference, candidate)

    async def each(
        self, phase: str, description: str, jobs: Mapping[K, Coroutine[Any, Any, T]]
    ) -> dict[K, T]:
        """Run jobs side by side in a phase that counts them, and return their results."""
        return await self._scheduler.each(phase, description, jobs)

    async def with_packages(
        self, cells: Sequence[ReadyCell], packages: tuple[str, ...]
    ) -> dict[CellId, ExtendedStack | PackagesError]:
        """Install packages beside the stacks of cells; the error says why there are none."""
        beside = {(cell.cell.stack, cell.model.packages): cell.stack for cell in cells}
        extended = await asyncio.gather(
            # a child that has imported the stack takes no other version of what is in it
            *(
                self._scheduler.stacks.extended_with(stack, id, packages, stack.packages)
                for (id, _), stack in beside.items()
            )
        )
        installed = dict(zip(beside, extended, strict=True))
        for (id, _), stack in installed.items():
            if isinstance(stack, PackagesError):
                text = f"{', '.join(packages)} is not installed beside {id}"
                self._scheduler.scope.dependencies.mark_unrepeatable(text)
        return {cell.cell: installed[cell.cell.stack, cell.model.packages] for cell in cells}


async def asked(
    scheduler: Scheduler,
    results: Iterable[CellResult],
    runs: Mapping[CellId, tuple[Capture, Capture]],
) -> Answers:
    """Ask every question that has jobs of its own, and return their answers."""
    run = ComparedRun(scheduler, results, runs)
    for question in questions():
        if question.ask is not None and (answers := await question.ask(run)):
            run.answers[question.name] = answers
    return run.answers


def of_row(row: PlannedRow, answers: Mapping[str, ByRow]) -> dict[str, Answer]:
    """Return the answers about one row, by question."""
    name = RowName(row.model, str(row.variant))
    return {question: of[name] for question, of in answers.items() if name in of}


def joined(captured: Mapping[str, Answer], asked: Mapping[str, Answer]) -> dict[str, Answer]:
    """Return what captures say and what jobs say; where a question has both, in one answer."""
    both = {
        name: captured[name].model_copy(
            update={field: getattr(answer, field) for field in answer.model_fields_set}
        )
        for name, answer in asked.items()
        if name in captured
    }
    return {**captured, **asked, **both}


def options_of(cell: CellId, model: ModelSpec) -> dict[str, Options]:
    """Return what the phases of questions are asked in a cell."""
    asked = {
        question.name: question.options(cell, model)
        for question in questions()
        if question.options is not None and model.asks(question.name)
    }
    return {name: options for name, options in asked.items() if options is not None}

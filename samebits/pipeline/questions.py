"""What a run asks of its cells beside their captures, and how it is shown while it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from samebits.jobs import graft, ladder, steps, trace
from samebits.jobs.records import TrainerOptions, TrainingOptions
from samebits.records.capture import Failure
from samebits.records.kinds import TRAINER, TRAINING
from samebits.records.trainer_file import TrainerFile
from samebits.records.training import TrainingFile
from samebits.stacks.packages import PackagesError
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from samebits.grafts.questions import GraftQuestions
    from samebits.jobs.common import ReadyPair
    from samebits.jobs.lab import Lab
    from samebits.ladder.asking import Ask
    from samebits.pipeline.scheduler import Scheduler
    from samebits.records.graft import Graft
    from samebits.records.ids import CellId
    from samebits.records.ladder import LadderFile
    from samebits.records.step_graft import StepGraft
    from samebits.records.step_trace import StepOrigin
    from samebits.records.trace import Cause
    from samebits.stacks.packages import ExtendedStack
    from samebits.trace.question import TraceRequest
    from samebits.training.question import StepQuestion


class OfPair(Protocol):
    """What is asked of a cell and of its reference."""

    @property
    def reference(self) -> CellId:
        """The reference."""


Q = TypeVar("Q", bound=OfPair)
T = TypeVar("T")

FOR_TRAINER = ("accelerate",)
"""What Trainer needs beside a stack."""


class Questions:
    """Asks the cells of a run."""

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
        description = f"{plural(len(questions), 'cell')} on the precision ladder"
        files = await self._scheduler.all(
            "third look", description, [of_cell(cell, ask) for cell, ask in jobs]
        )
        by_cell: dict[CellId, list[LadderFile]] = {}
        for (cell, _), file in zip(jobs, files, strict=True):
            by_cell.setdefault(cell, []).append(file)
        return by_cell

    async def causes(self, requests: Mapping[CellId, TraceRequest]) -> dict[CellId, Cause | str]:
        """Return where cells start to differ from their references, or why no trace shows it."""
        description = f"{plural(len(requests), 'pair')} traced to where the difference starts"
        return await self._of_pairs("causes", description, requests, trace.cause)

    async def grafts(self, requests: Mapping[CellId, GraftQuestions]) -> dict[CellId, Graft | str]:
        """Return which pieces of the references restore cells' bits, or why none was tried."""
        description = f"pieces of the reference put into {plural(len(requests), 'cell')}"
        return await self._of_pairs("grafts", description, requests, graft.graft)

    async def step_origins(
        self, questions: Mapping[CellId, StepQuestion]
    ) -> dict[CellId, StepOrigin | str]:
        """Return the first operation of each training step that differs, or why none is known."""
        description = f"{plural(len(questions), 'training step')} traced to where it diverges"
        return await self._of_pairs("step traces", description, questions, steps.step_origin)

    async def step_grafts(
        self, questions: Mapping[CellId, StepQuestion]
    ) -> dict[CellId, StepGraft | str]:
        """Return which pieces of a reference's loss restore its step, or why none was tried."""
        what = plural(len(questions), "training step")
        description = f"pieces of the reference's loss put into {what}"
        return await self._of_pairs("step grafts", description, questions, steps.step_graft)

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

    async def train(
        self, cells: Sequence[CellId], *, values: bool = False, relations: bool = True
    ) -> dict[CellId, TrainingFile]:
        """Train cells for one step; with ``values`` in float64, too, and with stored tensors."""

        async def of_cell(cell: CellId) -> TrainingFile:
            ready = await self._scheduler.ready(cell)
            options = TrainingOptions(values=values, relations=relations, large=ready.model.large)
            answer = await self._lab.ask(TRAINING, options, ready)
            if isinstance(answer, Failure):
                return TrainingFile(cell=cell, failure=answer)
            return answer

        also = ", also in float64" if values else ""
        description = f"{plural(len(cells), 'cell')} trained for one step{also}"
        phase = "training in float64" if values else "training"
        return await self._scheduler.each(phase, description, {c: of_cell(c) for c in cells})

    async def train_by_trainer(
        self, cells: Sequence[CellId], *, values: bool = False
    ) -> dict[CellId, TrainerFile]:
        """Train cells by transformers' own Trainer; with ``values`` in float64, too."""
        stacks = await self._with_accelerate(cells)

        async def of_cell(cell: CellId) -> TrainerFile:
            ready = await self._scheduler.ready(cell)
            stack = stacks[cell.stack, ready.model.packages]
            if isinstance(stack, PackagesError):
                reason = str(stack).splitlines()[0]
                return TrainerFile(cell=cell, reason=f"accelerate is not there: {reason}")
            options = TrainerOptions(folder=stack.folder, values=values, large=ready.model.large)
            # its process is that of the cell: only the child of this job uses the folder
            answer = await self._lab.ask(TRAINER, options, ready._replace(stack=stack))
            if isinstance(answer, Failure):
                return TrainerFile(cell=cell, failure=answer)
            return answer

        also = ", also in float64" if values else ""
        description = f"{plural(len(cells), 'cell')} trained by Trainer{also}"
        phase = "Trainer in float64" if values else "Trainer"
        return await self._scheduler.each(phase, description, {c: of_cell(c) for c in cells})

    async def _with_accelerate(
        self, cells: Sequence[CellId]
    ) -> dict[tuple[str, tuple[str, ...]], ExtendedStack | PackagesError]:
        """Install accelerate beside the stacks of cells; the error says why there is none."""
        ready = [await self._scheduler.ready(cell) for cell in cells]
        beside = {(cell.cell.stack, cell.model.packages): cell.stack for cell in ready}
        extended = await asyncio.gather(
            # a child that has imported the stack takes no other version of what is in it
            *(
                self._scheduler.stacks.extended_with(stack, id, FOR_TRAINER, stack.packages)
                for (id, _), stack in beside.items()
            )
        )
        for (id, _), stack in zip(beside, extended, strict=True):
            if isinstance(stack, PackagesError):
                text = f"accelerate is not installed beside {id}"
                self._scheduler.scope.dependencies.mark_unrepeatable(text)
        return dict(zip(beside, extended, strict=True))

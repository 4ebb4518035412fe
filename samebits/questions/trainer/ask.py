"""Which cells transformers' own Trainer trains, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits.questions.question import RowName
from samebits.questions.trainer.compare import compared, report_of, with_step
from samebits.questions.trainer.records import RUN, TrainerFile, TrainerOfRow
from samebits.questions.trainer.tasks import RunTask
from samebits.questions.training.records import TRAINING, TrainingReport
from samebits.questions.training.twice import pairs_of, trained
from samebits.records.capture import Failure
from samebits.stacks.packages import ExtendedStack, PackagesError
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from samebits.jobs.common import ReadyCell
    from samebits.questions.question import ByRow, Run
    from samebits.records.ids import CellId

PACKAGES = ("accelerate",)
"""What Trainer needs beside a stack."""


async def ask(run: Run) -> ByRow:
    """Let Trainer train the cells that have a training step, and compare each with its reference."""
    steps = _steps(run)
    cells = [cell for cell, step in steps.items() if step.losses]
    files, comparisons = await trained(
        cells,
        pairs_of(run, cells),
        lambda cell: _differs(steps[cell]),
        _Runs(run),
        lambda reference, candidate: compared(reference, candidate, run.store),
    )
    reports = {
        cell: with_step(report_of(file, comparisons.get(cell)), steps[cell])
        for cell, file in files.items()
    }
    return {
        RowName(row.model, str(row.variant)): TrainerOfRow(stacks=stacks)
        for row in run.plan.rows
        if (stacks := {cell.stack: reports[cell] for cell in row.cells if cell in reports})
    }


def _steps(run: Run) -> dict[CellId, TrainingReport]:
    """Return the training steps of the cells that have one."""
    by_row = run.answers.get(TRAINING.name, {})
    rows = ((row, by_row.get(RowName(row.model, str(row.variant)))) for row in run.plan.rows)
    answers = ((row, TRAINING.in_row({TRAINING.name: answer})) for row, answer in rows if answer)
    return {
        cell: answer.stacks[cell.stack]
        for row, answer in answers
        for cell in row.cells
        if answer is not None and cell.stack in answer.stacks
    }


def _differs(step: TrainingReport) -> bool:
    """Return True if a part of the training step has other bytes than the reference's."""
    return step.comparison is not None and bool(step.comparison.counts.keys() - {"identical"})


class _Runs:
    """Lets Trainer train cells."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(
        self,
        cells: Sequence[CellId],
        *,
        values: bool = False,
        again: bool = False,  # noqa: ARG002  a run leaves the same then
    ) -> dict[CellId, TrainerFile]:
        """Return what Trainer does with cells."""
        ready = [cell for id in cells if (cell := await self._run.ready(id)) is not None]
        stacks = await self._run.with_packages(ready, PACKAGES)
        also = ", also in float64" if values else ""
        return await self._run.each(
            "Trainer in float64" if values else "Trainer",
            f"{plural(len(cells), 'cell')} trained by Trainer{also}",
            {cell.cell: self._train(cell, stacks[cell.cell], values=values) for cell in ready},
        )

    async def _train(
        self, ready: ReadyCell, stack: ExtendedStack | PackagesError, *, values: bool
    ) -> TrainerFile:
        if isinstance(stack, PackagesError):
            reason = str(stack).splitlines()[0]
            return TrainerFile(cell=ready.cell, reason=f"accelerate is not there: {reason}")
        task = RunTask(folder=stack.folder, values=values, large=ready.model.large)
        # its process is that of the cell: only the child of this job uses the folder
        answer = await self._run.lab.ask(RUN, task, ready._replace(stack=stack))
        if isinstance(answer, Failure):
            return TrainerFile(cell=ready.cell, failure=answer)
        return answer

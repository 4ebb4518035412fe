"""Which cells are trained for one step, and how they compare."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from samebits.matrix.plan import first_on_cpu
from samebits.questions.question import RowName
from samebits.questions.training import explain
from samebits.questions.training.compare import compared
from samebits.questions.training.records import (
    STEP,
    TRAINING,
    TrainingFile,
    TrainingOfRow,
    TrainingReport,
)
from samebits.questions.training.report import report_of, with_explanation, with_forward
from samebits.questions.training.step_question import StepQuestion, question
from samebits.questions.training.tasks import StepTask
from samebits.questions.training.twice import pairs_of, trained
from samebits.records.capture import Failure
from samebits.records.ids import CellId, Verdict
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from samebits.jobs.common import ReadyPair
    from samebits.jobs.lab import Lab
    from samebits.questions.question import ByRow, Run
    from samebits.questions.training.step_trace import StepOrigin
    from samebits.records.comparison import CellResult

T = TypeVar("T")
Steps = dict["CellId", "TrainingReport"]
_WITHOUT_A_MODEL = frozenset({Verdict.FAILED, Verdict.ABSENT, Verdict.NOT_FINISHED})
"""Verdicts of cells that loaded no model, or whose machine ended them."""


async def ask(run: Run) -> ByRow:
    """Train the cells that ran, and compare each with its reference.

    A difference that begins in the forward is not accused again.
    """
    rows = first_on_cpu(run.plan, lambda model: run.matrix.model(model).asks(TRAINING.name))
    cells = [
        cell
        for row in rows
        for cell in row.cells
        if run.results[cell].judged not in _WITHOUT_A_MODEL
    ]
    pairs = pairs_of(run, cells)
    files, comparisons = await trained(
        cells,
        pairs,
        lambda cell: _differs(run.results[cell]),
        _Trainings(run),
        lambda reference, candidate: compared(reference, candidate, run.store),
    )
    steps = {
        cell: with_forward(report_of(file, comparisons.get(cell)), run.results[cell])
        for cell, file in files.items()
    }
    steps = await explained(run, steps, files, pairs)
    return {
        RowName(row.model, str(row.variant)): TrainingOfRow(stacks=stacks)
        for row in rows
        if (stacks := {cell.stack: steps[cell] for cell in row.cells if cell in steps})
    }


def _differs(result: CellResult) -> bool:
    """Return True if the forward of a cell has other bits than its reference."""
    return result.judged not in (Verdict.IDENTICAL, Verdict.REFERENCE)


class _Trainings:
    """Trains cells for one step."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(
        self, cells: Sequence[CellId], *, values: bool = False, again: bool = False
    ) -> dict[CellId, TrainingFile]:
        """Return what cells leave; what ran before has its relations already."""
        also = ", also in float64" if values else ""
        return await self._run.each(
            "training in float64" if values else "training",
            f"{plural(len(cells), 'cell')} trained for one step{also}",
            {cell: self._train(cell, values=values, relations=not again) for cell in cells},
        )

    async def _train(self, cell: CellId, *, values: bool, relations: bool) -> TrainingFile:
        ready = await self._run.ready(cell)
        assert ready is not None, "a cell that ran has a checkpoint"
        task = StepTask(values=values, relations=relations, large=ready.model.large)
        answer = await self._run.lab.ask(STEP, task, ready)
        return TrainingFile(cell=cell, failure=answer) if isinstance(answer, Failure) else answer


async def explained(
    run: Run,
    reports: Steps,
    files: Mapping[CellId, TrainingFile],
    pairs: Mapping[CellId, CellId],
) -> Steps:
    """Return the reports with what explains the steps that diverged by themselves."""
    questions = {
        cell: question(report.comparison, files[pairs[cell]], files[cell])
        for cell, report in reports.items()
        if report.comparison is not None
    }
    origins: dict[CellId, StepOrigin | str] = {
        cell: reason for cell, reason in questions.items() if isinstance(reason, str) and reason
    }
    to_trace = {cell: q for cell, q in questions.items() if not isinstance(q, str)}
    what = f"{plural(len(to_trace), 'training step')} traced to where it diverges"
    origins |= await _of_pairs(run, "step traces", what, to_trace, explain.step_origin)
    reports = reports | {
        cell: with_explanation(reports[cell], "origin", o) for cell, o in origins.items()
    }
    to_graft = {cell: q for cell, q in to_trace.items() if q.in_loss}
    steps = plural(len(to_graft), "training step")
    what = f"which part of the reference's loss restores {steps}"
    grafts = await _of_pairs(run, "step grafts", what, to_graft, explain.step_graft)
    return reports | {
        cell: with_explanation(reports[cell], "graft", g) for cell, g in grafts.items()
    }


async def _of_pairs(
    run: Run,
    phase: str,
    description: str,
    questions: Mapping[CellId, StepQuestion],
    explain_pair: Callable[[Lab, ReadyPair, StepQuestion], Coroutine[Any, Any, T]],
) -> dict[CellId, T]:
    async def of_cell(cell: CellId, about: StepQuestion) -> T:
        return await explain_pair(run.lab, await run.pair(about.reference, cell), about)

    jobs = {cell: of_cell(cell, about) for cell, about in questions.items()}
    return await run.each(phase, description, jobs)

"""The training steps of a run: which cells are trained, and how they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.training import rows_to_train
from samebits.pipeline.trainer import with_trainer
from samebits.records.ids import Verdict
from samebits.training.compare import compared, needs_values
from samebits.training.question import question
from samebits.training.report import report_of, with_forward, with_graft, with_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.compare.pair import TensorSource
    from samebits.matrix.plan import Plan
    from samebits.matrix.spec import Matrix
    from samebits.pipeline.scheduler import Scheduler
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId
    from samebits.records.step_trace import StepOrigin
    from samebits.records.training import TrainingComparison, TrainingFile, TrainingReport

Trained = dict["CellId", "TrainingReport"]
"""Cell -> its training step, for the cells that were trained."""
_WITHOUT_A_MODEL = frozenset({Verdict.FAILED, Verdict.ABSENT, Verdict.NOT_FINISHED})
"""Verdicts of cells that loaded no model, or whose machine ended them."""


async def trained(
    matrix: Matrix,
    planned: Plan,
    scheduler: Scheduler,
    results: Iterable[CellResult],
    store: TensorSource,
) -> Trained:
    """Train the cells that ran, and compare each with its reference.

    Pairs that differ are trained again, in float64 and with values. A difference that begins in
    the forward is not accused again. Then transformers' own Trainer trains the same cells.
    """
    by_cell = {result.cell: result for result in results}
    cells = [
        cell
        for row in rows_to_train(matrix, planned)
        for cell in row.cells
        if by_cell[cell].judged not in _WITHOUT_A_MODEL
    ]
    files = await scheduler.train(cells)
    pairs = {
        cell: reference
        for cell in cells
        if (reference := by_cell[cell].reference) in files and reference != cell
    }
    comparisons = {cell: compared(files[pairs[cell]], files[cell], store) for cell in pairs}
    open_pairs = {c: pairs[c] for c, result in comparisons.items() if needs_values(result)}
    again = dict.fromkeys((*open_pairs.values(), *open_pairs))
    values = await scheduler.train(list(again), values=True)
    comparisons |= {c: _again(files, values, (r, c), store) for c, r in open_pairs.items()}
    steps = {
        cell: with_forward(report_of(file, comparisons.get(cell)), by_cell[cell])
        for cell, file in files.items()
    }
    steps = await explained(steps, files, pairs, scheduler)
    return await with_trainer(steps, pairs, scheduler, store)


async def explained(
    reports: Trained,
    files: Mapping[CellId, TrainingFile],
    pairs: Mapping[CellId, CellId],
    scheduler: Scheduler,
) -> Trained:
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
    origins |= await scheduler.step_origins(to_trace)
    reports = reports | {cell: with_origin(reports[cell], o) for cell, o in origins.items()}
    grafts = await scheduler.step_grafts({c: q for c, q in to_trace.items() if q.in_loss})
    return reports | {cell: with_graft(reports[cell], g) for cell, g in grafts.items()}


def _again(
    files: Mapping[CellId, TrainingFile],
    values: Mapping[CellId, TrainingFile],
    pair: tuple[CellId, CellId],
    store: TensorSource,
) -> TrainingComparison:
    """Return the comparison with values; without them, where a second step gave none."""
    sides = [values[cell] if values[cell].own is not None else files[cell] for cell in pair]
    return compared(sides[0], sides[1], store)

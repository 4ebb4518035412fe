"""The training steps of a run: which cells are trained, and how they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.training import rows_to_train
from samebits.pipeline.trainer import sides, with_trainer
from samebits.records.ids import Verdict
from samebits.training.compare import compared, needs_values
from samebits.training.question import question
from samebits.training.report import report_of, with_forward, with_graft, with_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from samebits.compare.pair import TensorSource
    from samebits.matrix.plan import Plan
    from samebits.matrix.spec import Matrix
    from samebits.pipeline.scheduler import Scheduler
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId
    from samebits.records.step_trace import StepOrigin
    from samebits.records.training import TrainingFile, TrainingReport

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

    Pairs that differ are compared in float64, too: at once where the forward already differs, else
    in a second step. A difference that begins in the forward is not accused again. Then
    transformers' own Trainer trains the same cells.
    """
    by_cell = {result.cell: result for result in results}
    cells = [
        cell
        for row in rows_to_train(matrix, planned)
        for cell in row.cells
        if by_cell[cell].judged not in _WITHOUT_A_MODEL
    ]
    pairs = {
        cell: reference
        for cell in cells
        if (reference := by_cell[cell].reference) in cells and reference != cell
    }
    files = await _first(cells, sides(pairs, lambda cell: _differs(by_cell[cell])), scheduler)
    comparisons = {cell: compared(files[pairs[cell]], files[cell], store) for cell in pairs}
    open_pairs = {c: pairs[c] for c, result in comparisons.items() if needs_values(result)}
    again = [cell for cell in sides(open_pairs) if not _has_values(files[cell])]
    values = await scheduler.train(again, values=True, relations=False)
    seen = files | {cell: file for cell, file in values.items() if file.own is not None}
    comparisons |= {c: compared(seen[r], seen[c], store) for c, r in open_pairs.items()}
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


async def _first(
    cells: Sequence[CellId], differing: Sequence[CellId], scheduler: Scheduler
) -> dict[CellId, TrainingFile]:
    """Return the steps of cells, with values for those whose forward differs.

    A step in float64 may end the process, such as by its memory; then the cell is trained without it.
    """
    plain = [cell for cell in cells if cell not in differing]
    files = await scheduler.train(differing, values=True)
    plain += [cell for cell, file in files.items() if file.failure is not None]
    return files | await scheduler.train(plain)


def _differs(result: CellResult) -> bool:
    """Return True if the forward of a cell has other bits than its reference."""
    return result.judged not in (Verdict.IDENTICAL, Verdict.REFERENCE)


def _has_values(file: TrainingFile) -> bool:
    """Return True if the file was made with values, whether or not float64 worked."""
    return file.float64 is not None or bool(file.no_float64)

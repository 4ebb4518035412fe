"""The training steps of a run: which cells are trained, and how they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.diagnose import verdict
from samebits.jobs.training import rows_to_train
from samebits.training.compare import compared, needs_values
from samebits.training.report import report_of, with_forward

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.compare.pair import TensorSource
    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix
    from samebits.pipeline.scheduler import Scheduler
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId
    from samebits.records.training import TrainingComparison, TrainingFile, TrainingReport

Trained = dict["CellId", "TrainingReport"]
"""Cell -> its training step, for the cells that were trained."""


async def trained(
    matrix: Matrix,
    planned: Plan,
    scheduler: Scheduler,
    runs: Mapping[CellId, verdict.Runs],
    store: TensorSource,
) -> Trained:
    """Train the cells that ran, and compare each with its reference.

    Pairs that differ are trained again, in float64 and with values.
    """
    rows = rows_to_train(matrix, planned)
    references = {row: _reference(row, runs) for row in rows}
    cells = [cell for row in rows for cell in row.cells if _ran(runs[cell])]
    files = await scheduler.train(cells)
    pairs = {
        cell: reference
        for row, reference in references.items()
        for cell in row.cells
        if reference in files and cell in files and cell != reference
    }
    results = {cell: compared(files[pairs[cell]], files[cell], store) for cell in pairs}
    open_pairs = {cell: pairs[cell] for cell, result in results.items() if needs_values(result)}
    again = dict.fromkeys((*open_pairs.values(), *open_pairs))
    values = await scheduler.train(list(again), values=True)
    results |= {c: _again(files, values, (r, c), store) for c, r in open_pairs.items()}
    return {cell: report_of(file, results.get(cell)) for cell, file in files.items()}


def beside_forward(reports: Trained, results: Iterable[CellResult]) -> Trained:
    """Return the training steps with what the cells' own differences explain."""
    by_cell = {result.cell: result for result in results}
    return {
        cell: with_forward(report, by_cell[cell]) if cell in by_cell else report
        for cell, report in reports.items()
    }


def _again(
    files: Mapping[CellId, TrainingFile],
    values: Mapping[CellId, TrainingFile],
    pair: tuple[CellId, CellId],
    store: TensorSource,
) -> TrainingComparison:
    """Return the comparison with values; without them, where a second step gave none."""
    sides = [values[cell] if values[cell].own is not None else files[cell] for cell in pair]
    return compared(sides[0], sides[1], store)


def _reference(row: PlannedRow, runs: Mapping[CellId, verdict.Runs]) -> CellId | None:
    return verdict.choose_reference({cell: runs[cell] for cell in row.cells}, row.reference)


def _ran(runs: verdict.Runs) -> bool:
    """Return True if a cell loaded its model, so that it can be trained."""
    return runs[0].status == "complete"

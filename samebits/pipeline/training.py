"""The training steps of a run: which cells are trained, and how they compare."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from samebits.matrix.plan import first_on_cpu
from samebits.pipeline.trainer import asked, with_trainer
from samebits.records.ids import Verdict
from samebits.training.compare import compared
from samebits.training.judge import needs_values
from samebits.training.question import question
from samebits.training.report import report_of, with_forward, with_graft, with_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.compare.pair import TensorSource
    from samebits.matrix.plan import Plan
    from samebits.matrix.spec import Matrix
    from samebits.pipeline.questions import Questions
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
    asking: Questions,
    results: Iterable[CellResult],
    store: TensorSource,
) -> Trained:
    """Train the cells that ran, and compare each with its reference.

    A difference that begins in the forward is not accused again. Then transformers' own Trainer
    trains the same cells.
    """
    by_cell = {result.cell: result for result in results}
    cells = [
        cell
        for row in first_on_cpu(planned, lambda model: matrix.model(model).asks("training"))
        for cell in row.cells
        if by_cell[cell].judged not in _WITHOUT_A_MODEL
    ]
    pairs = {
        cell: reference
        for cell in cells
        if (reference := by_cell[cell].reference) in cells and reference != cell
    }
    files, _, comparisons = await asked(
        cells,
        pairs,
        lambda cell: _differs(by_cell[cell]),
        asking.train,
        partial(asking.train, values=True),
        partial(asking.train, values=True, relations=False),
        lambda reference, candidate: compared(reference, candidate, store),
        needs_values,
    )
    steps = {
        cell: with_forward(report_of(file, comparisons.get(cell)), by_cell[cell])
        for cell, file in files.items()
    }
    steps = await explained(steps, files, pairs, asking)
    return await with_trainer(steps, pairs, asking, store)


async def explained(
    reports: Trained,
    files: Mapping[CellId, TrainingFile],
    pairs: Mapping[CellId, CellId],
    asking: Questions,
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
    origins |= await asking.step_origins(to_trace)
    reports = reports | {cell: with_origin(reports[cell], o) for cell, o in origins.items()}
    grafts = await asking.step_grafts({c: q for c, q in to_trace.items() if q.in_loss})
    return reports | {cell: with_graft(reports[cell], g) for cell, g in grafts.items()}


def _differs(result: CellResult) -> bool:
    """Return True if the forward of a cell has other bits than its reference."""
    return result.judged not in (Verdict.IDENTICAL, Verdict.REFERENCE)

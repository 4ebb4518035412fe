"""Cells that transformers' own Trainer trains: which ones, and how they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.records.training import TrainingRelations
from samebits.training.trainer import compared, needs_values, report_of, with_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.compare.pair import TensorSource
    from samebits.pipeline.scheduler import Scheduler
    from samebits.records.ids import CellId
    from samebits.records.trainer import TrainerComparison
    from samebits.records.trainer_file import TrainerFile
    from samebits.records.training import TrainingReport


async def with_trainer(
    steps: Mapping[CellId, TrainingReport],
    pairs: Mapping[CellId, CellId],
    scheduler: Scheduler,
    store: TensorSource,
) -> dict[CellId, TrainingReport]:
    """Return the training steps with what Trainer does with the same cells.

    Only cells with a step are asked. Pairs that differ are asked again, in float64 and with values.
    """
    files = await scheduler.train_by_trainer([c for c, step in steps.items() if step.losses])
    open_pairs = {c: r for c, r in pairs.items() if c in files and r in files}
    comparisons = {c: compared(files[r], files[c], store) for c, r in open_pairs.items()}
    open_pairs = {c: r for c, r in open_pairs.items() if needs_values(comparisons[c])}
    again = dict.fromkeys((*open_pairs.values(), *open_pairs))
    values = await scheduler.train_by_trainer(list(again), values=True)
    for cell, reference in open_pairs.items():
        sides = [values[c] if values[c].own is not None else files[c] for c in (reference, cell)]
        comparisons[cell] = compared(sides[0], sides[1], store)
    return {
        cell: _joined(step, files.get(cell), comparisons.get(cell)) for cell, step in steps.items()
    }


def _joined(
    step: TrainingReport, file: TrainerFile | None, comparison: TrainerComparison | None
) -> TrainingReport:
    """Return a step with what Trainer does, and with its relation among the others."""
    if file is None:
        return step
    report = with_step(report_of(file, comparison), step)
    relations = step.relations
    if file.relations is not None:
        own = relations or TrainingRelations()
        relations = own.model_copy(
            update={
                "relations": own.relations + file.relations.relations,
                "inapplicable": own.inapplicable + file.relations.inapplicable,
            }
        )
    return step.model_copy(update={"trainer": report, "relations": relations})

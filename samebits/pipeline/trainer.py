"""Cells that transformers' own Trainer trains: which ones, and how they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.records.training import TrainingRelations
from samebits.training.trainer import compared, needs_values, report_of, with_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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

    Only cells with a step are trained. Pairs that differ are compared in float64, too: at once where
    the step already differs, else in a second run.
    """
    cells = [cell for cell, step in steps.items() if step.losses]
    pairs = {c: r for c, r in pairs.items() if c in cells and r in cells}
    files = await _first(cells, sides(pairs, lambda cell: _differs(steps[cell])), scheduler)
    comparisons = {c: compared(files[r], files[c], store) for c, r in pairs.items()}
    open_pairs = {c: r for c, r in pairs.items() if needs_values(comparisons[c])}
    again = [cell for cell in sides(open_pairs) if not _has_values(files[cell])]
    values = await scheduler.train_by_trainer(again, values=True)
    files |= {cell: file for cell, file in values.items() if file.own is not None}
    comparisons |= {c: compared(files[r], files[c], store) for c, r in open_pairs.items()}
    return {
        cell: _joined(step, files.get(cell), comparisons.get(cell)) for cell, step in steps.items()
    }


async def _first(
    cells: Sequence[CellId], differing: Sequence[CellId], scheduler: Scheduler
) -> dict[CellId, TrainerFile]:
    """Return what Trainer does with cells, with values for those whose step differs.

    A run in float64 may end the process, such as by its memory; then the cell runs without it.
    """
    plain = [cell for cell in cells if cell not in differing]
    files = await scheduler.train_by_trainer(differing, values=True)
    plain += [cell for cell, file in files.items() if file.failure is not None]
    return files | await scheduler.train_by_trainer(plain)


def sides(
    pairs: Mapping[CellId, CellId], chosen: Callable[[CellId], bool] = lambda _: True
) -> list[CellId]:
    """Return the references and the candidates of pairs with a chosen candidate, each once."""
    chosen_pairs = {c: r for c, r in pairs.items() if chosen(c)}
    return list(dict.fromkeys((*chosen_pairs.values(), *chosen_pairs)))


def _differs(step: TrainingReport) -> bool:
    """Return True if a part of the training step has other bytes than the reference's."""
    return step.comparison is not None and bool(step.comparison.counts.keys() - {"identical"})


def _has_values(file: TrainerFile) -> bool:
    """Return True if the file was made with values, whether or not float64 worked."""
    return file.float64 is not None or bool(file.no_float64)


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

"""Cells that transformers' own Trainer trains: which ones, and how they compare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from samebits.records.trainer_file import TrainerFile
from samebits.records.training import TrainingFile, TrainingRelations
from samebits.training.judge import needs_values
from samebits.training.trainer import compared, report_of, with_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.compare.pair import TensorSource
    from samebits.pipeline.questions import Questions
    from samebits.records.ids import CellId
    from samebits.records.trainer import TrainerComparison
    from samebits.records.training import TrainingReport


async def with_trainer(
    steps: Mapping[CellId, TrainingReport],
    pairs: Mapping[CellId, CellId],
    asking: Questions,
    store: TensorSource,
) -> dict[CellId, TrainingReport]:
    """Return the training steps with what Trainer does with the same cells.

    Only cells with a step are trained.
    """
    cells = [cell for cell, step in steps.items() if step.losses]
    with_values = partial(asking.train_by_trainer, values=True)
    _, files, comparisons = await asked(
        cells,
        {c: r for c, r in pairs.items() if c in cells and r in cells},
        lambda cell: _differs(steps[cell]),
        asking.train_by_trainer,
        with_values,
        with_values,
        lambda reference, candidate: compared(reference, candidate, store),
        needs_values,
    )
    return {
        cell: _joined(step, files.get(cell), comparisons.get(cell)) for cell, step in steps.items()
    }


T = TypeVar("T", TrainingFile, TrainerFile)
C = TypeVar("C")
Train = Callable[[Sequence["CellId"]], Awaitable[dict["CellId", T]]]


async def asked(
    cells: Sequence[CellId],
    pairs: Mapping[CellId, CellId],
    differs: Callable[[CellId], bool],
    plain: Train[T],
    with_values: Train[T],
    again_with_values: Train[T],
    compare: Callable[[T, T], C],
    needs_values: Callable[[C], bool],
) -> tuple[dict[CellId, T], dict[CellId, T], dict[CellId, C]]:
    """Return what cells leave at first, what they leave at last, and how pairs compare.

    Pairs that differ are compared in float64, too: at once where it is known before, else in a
    second run. A run in float64 may end the process, such as by its memory; then the cell runs
    without it.
    """
    known = _sides({c: r for c, r in pairs.items() if differs(c)})
    files = await with_values(known)
    lost = [cell for cell, file in files.items() if file.failure is not None]
    files |= await plain([cell for cell in cells if cell not in known or cell in lost])
    comparisons = {c: compare(files[r], files[c]) for c, r in pairs.items()}
    still = {c: r for c, r in pairs.items() if needs_values(comparisons[c])}
    # whether or not float64 worked
    again = [c for c in _sides(still) if files[c].float64 is None and not files[c].no_float64]
    values = await again_with_values(again)
    last = files | {cell: file for cell, file in values.items() if file.own is not None}
    return files, last, comparisons | {c: compare(last[r], last[c]) for c, r in still.items()}


def _sides(pairs: Mapping[CellId, CellId]) -> list[CellId]:
    """Return the references and the candidates of pairs, each once."""
    return list(dict.fromkeys((*pairs.values(), *pairs)))


def _differs(step: TrainingReport) -> bool:
    """Return True if a part of the training step has other bytes than the reference's."""
    return step.comparison is not None and bool(step.comparison.counts.keys() - {"identical"})


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

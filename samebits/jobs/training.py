"""Runner of training jobs, which train the model of a cell for one step.

A first job hashes what the step computes. Where a pair differs, a second one computes in float64,
too, and stores the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import LimitedStore, TrainingJob, TrainingOptions
from samebits.records.training import TrainingFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.jobs.cache import JobCache
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix, ModelSpec
    from samebits.records.ids import CellId
    from samebits.records.tensor import TensorRef
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess

VALUES_LIMIT = 256 << 20
"""Bytes up to which a tensor is stored where a pair differs."""


def rows_to_train(matrix: Matrix, plan: Plan) -> tuple[PlannedRow, ...]:
    """Return the first CPU row of every model that is to be trained."""
    first: dict[str, PlannedRow] = {}
    for row in plan.rows:
        if row.variant.device == "cpu" and matrix.model(row.model).training:
            first.setdefault(row.model, row)
    return tuple(first.values())


class Trainer:
    """Trains cells for one step and caches the results."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache

    async def train(
        self,
        cell: CellId,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        *,
        values: bool,
        relations: bool,
    ) -> TrainingFile:
        """Return what one step of ``cell`` computes; with ``values`` in float64, too."""
        options = TrainingOptions(values=values, relations=relations, large=model.large, result="")
        facts = {
            **follows_from(cell, model, checkpoint, stack),
            "training": options.model_dump(mode="json"),
        }
        path = self._cache.path_of_cell("trainings", cell, facts)
        job = CachedJob(
            path,
            _FORM,
            checkpoint,
            lambda written: TrainingJob(
                **job_of(cell, model, checkpoint, written),
                store=LimitedStore(root=str(self._cache.root), limit=VALUES_LIMIT if values else 0),
                training=options.model_copy(update={"result": str(written)}),
            ),
            unrepeatable=f"{cell} wrote no training step, or failed for a reason that may be the machine",
            belongs=lambda result: result.cell == cell,
            if_lost=lambda failure: TrainingFile(cell=cell, failure=failure),
        )
        result = await self._cache.result(job, process)
        assert result is not None
        return result


def _tensors(file: TrainingFile) -> Iterator[TensorRef]:
    """Yield every tensor of both precisions."""
    for step in (file.own, file.float64):
        if step is not None:
            yield from step.gradients.values()
            yield from (b.logits for b in step.batches.values() if b.logits is not None)


_FORM = ResultForm(TrainingFile, is_repeatable, _tensors)

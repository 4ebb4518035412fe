"""Runner of trainer jobs, which train the model of a cell by transformers' own Trainer.

Trainer needs accelerate, which no stack has. It is installed as the packages of a model are, in a
folder beside the stack, and only the child of this job uses the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import LimitedStore, TrainerJob, TrainerOptions
from samebits.jobs.training import VALUES_LIMIT
from samebits.records.trainer_file import TrainerFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.jobs.cache import JobCache
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.records.tensor import TensorRef
    from samebits.stacks.packages import ExtendedStack
    from samebits.stacks.process import StackProcess

PACKAGES = ("accelerate",)
"""What Trainer needs beside a stack."""


class TrainerRunner:
    """Trains cells by Trainer and caches the results."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache

    async def train(
        self,
        cell: CellId,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: ExtendedStack,
        process: StackProcess,
        *,
        values: bool,
    ) -> TrainerFile:
        """Return what Trainer does with ``cell``; with ``values`` in float64, too.

        ``stack`` has accelerate; ``process`` is that of the cell, without it.
        """
        options = TrainerOptions(folder="", values=values, large=model.large, result="")
        facts = {
            **follows_from(cell, model, checkpoint, stack),
            "trainer": options.model_dump(mode="json"),
        }
        path = self._cache.path_of_cell("trainers", cell, facts)
        job = CachedJob(
            path,
            _FORM,
            checkpoint,
            lambda written: TrainerJob(
                **job_of(cell, model, checkpoint, written),
                store=LimitedStore(root=str(self._cache.root), limit=VALUES_LIMIT if values else 0),
                trainer=options.model_copy(update={"folder": stack.folder, "result": str(written)}),
            ),
            unrepeatable=f"{cell} wrote nothing of Trainer, or failed for a reason that may be the machine",
            belongs=lambda result: result.cell == cell,
            if_lost=lambda failure: TrainerFile(cell=cell, failure=failure),
        )
        result = await self._cache.result(job, process)
        assert result is not None
        return result


def _tensors(file: TrainerFile) -> Iterator[TensorRef]:
    """Yield every tensor of both precisions."""
    for facts in (file.own, file.float64):
        for run in facts.runs.values() if facts is not None else ():
            yield from run.weights.values()


_FORM = ResultForm(TrainerFile, is_repeatable, _tensors)

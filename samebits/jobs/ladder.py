"""Runner of ladder jobs, which compute one cell in several precisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import LadderJob, LimitedStore, Rungs
from samebits.records.ladder import LadderFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samebits.jobs.cache import JobCache
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.ladder.asking import Ask
    from samebits.matrix.probefile import ProbeFile
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.records.tensor import TensorRef
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess

VALUES_LIMIT = 256 << 20
"""Bytes up to which a tensor of a rung is stored; the logits of a real model are large."""


class Climber:
    """Runs cells on the ladder and caches the results."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache

    async def climb(
        self,
        cell: CellId,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        ask: Ask,
    ) -> LadderFile:
        """Return what ``cell`` computes on every rung."""
        job = CachedJob(
            self._path(cell, model, checkpoint, stack, ask),
            _FORM,
            checkpoint,
            lambda path: self._job(cell, model, checkpoint, path, ask),
            unrepeatable=f"{cell} wrote no result of the ladder, or failed for a reason that may be the machine",
            cell=cell,
            belongs=lambda result: result.cell == cell,
            if_lost=lambda failure: LadderFile(cell=cell, failure=failure),
        )
        result = await self._cache.result(job, process)
        assert result is not None
        return result

    def _path(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack, ask: Ask
    ) -> Path:
        facts = {
            **follows_from(cell, model, checkpoint, stack),
            "ask": ask.model_dump(mode="json"),
            "probe files": [file.model_dump(mode="json") for file in _probe_files(model, ask)],
        }
        return self._cache.path_of_cell("ladders", cell, facts)

    def _job(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, path: Path, ask: Ask
    ) -> LadderJob:
        return LadderJob(
            **job_of(cell, model, checkpoint, path),
            store=LimitedStore(root=str(self._cache.root), limit=VALUES_LIMIT),
            ladder=Rungs(
                **ask.model_dump(), probe_files=_probe_files(model, ask), result=str(path)
            ),
        )


def _probe_files(model: ModelSpec, ask: Ask) -> tuple[ProbeFile, ...]:
    """Return the files with the probes that a job runs on the rungs."""
    return tuple(file for file in model.probe_files if file.name in ask.probes)


def _tensors(file: LadderFile) -> Iterator[TensorRef]:
    """Yield every tensor of every rung, and every tensor of the run with aligned memory."""
    for aligned in file.aligned:
        yield from aligned.refs.values()
    for rung in file.rungs.values():
        yield from rung.decode.values()
        for probes in rung.probes.values():
            yield from probes.tensors.values()
        for forward in rung.forward.values():
            yield from (layer.ref for layer in forward.hidden_states)
            for choice in forward.choices:
                yield from (choice.scores, choice.chosen, choice.margin)
            yield from forward.outputs.values()
            if forward.logits is not None:
                yield forward.logits


_FORM = ResultForm(LadderFile, is_repeatable, _tensors)

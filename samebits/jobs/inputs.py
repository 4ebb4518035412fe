"""Runner of input jobs, in which one stack chooses the inputs of a model before its cells run.

The reference stack chooses them if it can read the model, otherwise the oldest stack that can. The
digest of the inputs is part of the name of every result of the model's cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import loading, loading_facts
from samebits.jobs.records import InputsJob, JobStore, PromptedModel
from samebits.records.inputs import Inputs, InputsFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from samebits.jobs.cache import JobCache
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess

NO_STACK = "no stack could read the arguments of the model's forward"
_FORM = ResultForm(InputsFile, is_repeatable, InputsFile.tensors)


class Feeder:
    """Lets one stack choose a model's inputs, and caches the result."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache

    async def choose(
        self,
        model: ModelSpec,
        checkpoint: Checkpoint,
        choosers: Iterable[tuple[Stack, StackProcess]],
    ) -> Checkpoint:
        """Return the checkpoint with the inputs of the first chooser that can choose them."""
        reasons = []
        for stack, process in choosers:
            path = self._path(model, checkpoint, stack)
            choice = await self._choice(model, checkpoint, stack, process, path)
            if choice is not None and choice.is_chosen:
                inputs = Inputs(record=str(path), root=str(self._cache.root), digest=choice.digest)
                return checkpoint.model_copy(update={"inputs": inputs})
            reasons.append(f"{stack.id}: {choice.reason if choice else 'it wrote no result'}")
        inputs = Inputs(reason=": ".join([NO_STACK, *reasons[:1]]))
        return checkpoint.model_copy(update={"inputs": inputs})

    async def _choice(
        self,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        path: Path,
    ) -> InputsFile | None:
        job = CachedJob(
            path,
            _FORM,
            checkpoint,
            lambda written: self._job(model, checkpoint, stack, written),
            unrepeatable=f"{stack.id} could not choose inputs for {model.name}",
        )
        return await self._cache.result(job, process)

    def _path(self, model: ModelSpec, checkpoint: Checkpoint, stack: Stack) -> Path:
        facts = {
            "model": model.name,
            "stack": [stack.id, stack.lock_digest],
            "checkpoint": [checkpoint.source, checkpoint.revision, checkpoint.digest],
            **loading_facts(model),
            "prompts": _prompted_model(model, checkpoint).model_dump(mode="json")["prompts"],
            "probes": self._cache.probes,
        }
        return self._cache.path("inputs", model.name, stack.id, facts=facts)

    def _job(self, model: ModelSpec, checkpoint: Checkpoint, stack: Stack, path: Path) -> InputsJob:
        return InputsJob(
            name=model.name,
            stack=stack.id,
            timeout=model.timeout,
            log=str(path.with_suffix(".log")),
            result=str(path),
            store=JobStore(root=str(self._cache.root)),
            model=_prompted_model(model, checkpoint),
        )


def _prompted_model(model: ModelSpec, checkpoint: Checkpoint) -> PromptedModel:
    return PromptedModel(**loading(model, checkpoint), prompts=model.prompts)

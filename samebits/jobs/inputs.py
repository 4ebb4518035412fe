"""Runner of input jobs, in which one stack chooses class and inputs of a model before its cells run.

The reference stack chooses them if it can read the model, otherwise the oldest stack that can. The
digest of both is part of the name of every result of the model's cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from samebits.base.digests import digest_of_file
from samebits.jobs.cache import CachedJob, JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import as_written, identity_of, loading, loading_facts
from samebits.matrix.arguments import InputSet, InputSetEntry
from samebits.matrix.spec import ModelSpec, Prompt
from samebits.records.inputs import Inputs, InputsFile
from samebits.records.kinds import INPUTS
from samebits.stacks.build import Stack
from samebits.stacks.process import StackProcess
from samebits_wire.jobs import InputsJob

NO_STACK = "no environment could read the arguments of the model's forward"


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
            job = CachedJob(
                path,
                InputsFile,
                checkpoint,
                partial(self._job, model, checkpoint, stack),
                unrepeatable=f"{stack.id} could not choose inputs for {model.name}",
            )
            choice = await self._cache.result(job, process)
            if isinstance(choice, InputsFile) and choice.is_chosen:
                inputs = Inputs(
                    record=str(path),
                    root=str(self._cache.root),
                    digest=choice.digest,
                    model_class=choice.model_class,
                    kinds=choice.kinds,
                    more=choice.more(model.prompts),
                )
                return checkpoint.model_copy(update={"inputs": inputs})
            reason = choice.reason if isinstance(choice, InputsFile) else "it wrote no result"
            reasons.append(f"{stack.id}: {reason}")
        inputs = Inputs(reason=": ".join([NO_STACK, *reasons[:1]]))
        return checkpoint.model_copy(update={"inputs": inputs})

    def _path(self, model: ModelSpec, checkpoint: Checkpoint, stack: Stack) -> Path:
        facts = {
            "model": model.name,
            "stack": [stack.id, stack.lock_digest],
            "checkpoint": identity_of(checkpoint),
            **loading_facts(model),
            "prompts": as_written(model.prompts),
            "probes": self._cache.probes,
            **self._given(model),
        }
        return self._cache.path(INPUTS.folder, model.name, stack.id, facts=facts)

    def _given(self, model: ModelSpec) -> dict[str, Any]:
        """Return what a result depends on through input sets: files, and positions in a message."""
        files = {}
        for name, given in _sets(model).items():
            if (path := _file_of(given)) is not None:
                self._cache.dependencies.file(path)
                files[name] = digest_of_file(path)
        places = {name: given.places for name, given in _sets(model).items()}
        return {"files": files, "places": places} if places else {}

    def _job(self, model: ModelSpec, checkpoint: Checkpoint, stack: Stack, path: Path) -> InputsJob:
        prompts = as_written(_with_whole_paths(model.prompts))
        return {
            "kind": "inputs",
            "name": model.name,
            "stack": stack.id,
            "threads": 1,  # it computes nothing that is compared
            "timeout": model.timeout,
            "log": str(path.with_suffix(".log")),
            "result": str(path),
            "store": {"root": str(self._cache.root)},
            "model": {**loading(model, checkpoint), "prompts": prompts},
            "places": {name: given.places for name, given in _sets(model).items()},
        }


def _sets(model: ModelSpec) -> dict[str, InputSet]:
    """Return a model's input sets by name."""
    return {n: given for n, given in model.prompts.items() if isinstance(given, InputSet)}


def _file_of(given: InputSet) -> Path | None:
    """Return the file that an input set names, None if its arguments are declared."""
    name = given.function.rpartition(":")[0] if given.function is not None else given.file
    return None if name is None else Path(given.folder, name).absolute()


def _with_whole_paths(
    prompts: Mapping[str, Prompt | InputSetEntry],
) -> dict[str, Prompt | InputSetEntry]:
    """Return prompts and input sets, of which these have absolute paths."""
    whole = dict(prompts)
    for name, given in prompts.items():
        if not isinstance(given, InputSet):
            continue
        if given.function is not None:
            path = f"{_file_of(given)}:{given.function.rpartition(':')[2]}"
            whole[name] = given.model_copy(update={"function": path})
        elif given.file is not None:
            whole[name] = given.model_copy(update={"file": str(_file_of(given))})
    return whole

"""What all jobs of a cell say of its model, and the facts that their results depend on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from samebits.jobs.checkpoints import Checkpoint
from samebits.matrix.arguments import InputSetEntry
from samebits.matrix.spec import ModelSpec, Prompt
from samebits.records.ids import CellId, Variant
from samebits.records.inputs import Inputs
from samebits.stacks.build import Stack
from samebits.stacks.process import StackProcess
from samebits_wire.jobs import CellModel, JobOfCell, ModelSource

SEVERAL = 4
"""Threads of a large model, on any machine: another number sums in another order."""
LARGE = 4 << 30
"""Bytes of a checkpoint from which on its jobs have several threads.

Below, several jobs fit in memory side by side, and keep more cores busy than several threads of one
job do, as only its forwards use them.
"""
NOT_CHOSEN = "the arguments of the model's forward were not read in any environment"


class ReadyCell(NamedTuple):
    """A cell with everything that its jobs need."""

    cell: CellId
    model: ModelSpec
    checkpoint: Checkpoint
    stack: Stack
    process: StackProcess

    @property
    def threads(self) -> int:
        """Threads of its jobs."""
        return threads_of(self.model, self.checkpoint, self.cell.variant)


class ReadyPair(NamedTuple):
    """Two cells of one model to compare."""

    reference: ReadyCell
    candidate: ReadyCell


def threads_of(model: ModelSpec, checkpoint: Checkpoint, variant: Variant) -> int:
    """Return the threads of every job of a model's cells, in every stack and on every machine."""
    if model.threads is not None:
        return model.threads
    is_large = variant.device == "cpu" and (checkpoint.n_bytes or 0) >= LARGE
    return SEVERAL if is_large else 1


def model_of(model: ModelSpec, checkpoint: Checkpoint) -> CellModel:
    """Return where a job loads the model of a cell from, with its prompts and inputs."""
    return {
        **loading(model, checkpoint),
        "inputs": inputs_of(checkpoint).as_json(),
        "prompts": as_written(prompts_of(model, checkpoint)),
    }


def prompts_of(model: ModelSpec, checkpoint: Checkpoint) -> dict[str, Prompt | InputSetEntry]:
    """Return everything that forward is run with, by name: what matrix.yaml asks for, then what was made beside it.

    The latter is in the inputs alone, and the job needs no more than its name.
    """
    return model.prompts | {name: Prompt(length=1) for name in inputs_of(checkpoint).more}


def as_written(prompts: Mapping[str, Prompt | InputSetEntry]) -> dict[str, Any]:
    """Return prompts and input sets with the keys that were given, as matrix.yaml has them."""
    return {n: given.model_dump(mode="json", exclude_none=True) for n, given in prompts.items()}


def job_of(ready: ReadyCell, path: Path) -> JobOfCell:
    """Return the keys that every job of a cell has; its log has the name of ``path``."""
    return {
        "cell": ready.cell.as_json(),
        "threads": ready.threads,
        "timeout": ready.model.timeout,
        "budget": ready.model.budget,
        "log": str(path.with_suffix(".log")),
    }


def loading(model: ModelSpec, checkpoint: Checkpoint) -> ModelSource:
    """Return where a job loads a model from, and how."""
    return {
        "source": checkpoint.source,
        "revision": checkpoint.revision,
        "trust_remote_code": model.trust_remote_code,
        "imports": list(model.imports),
        "model_class": model.model_class,
        "load": model.model_dump(mode="json", include={"load"})["load"],
        "logits": model.logits,
    }


def loading_facts(model: ModelSpec) -> dict[str, Any]:
    """Return the digest inputs for how a model is loaded; the packages are in the stack's lock."""
    return {
        "trust_remote_code": model.trust_remote_code,
        "code": [model.imports, model.model_class],
        "load": model.load,
        "logits": model.logits,
    }


def identity_of(checkpoint: Checkpoint) -> list[str | None]:
    """Return the digest inputs for a checkpoint, which are the same on every machine.

    Of a folder only the name counts, which messages of transformers contain.
    """
    source = checkpoint.source if checkpoint.digest is None else PurePath(checkpoint.source).name
    return [source, checkpoint.revision, checkpoint.digest]


def inputs_of(checkpoint: Checkpoint) -> Inputs:
    """Return where a job finds its inputs, or the reason why there are none."""
    return checkpoint.inputs or Inputs(reason=NOT_CHOSEN)


def digest_of_inputs(checkpoint: Checkpoint) -> list[str]:
    """Return the digest inputs for a model's inputs: their digest, and why there are none."""
    inputs = inputs_of(checkpoint)
    return [inputs.digest, inputs.reason]


def follows_from(ready: ReadyCell) -> dict[str, Any]:
    """Return everything that determines a cell's results, without the question itself.

    A result file is named after the digest of this and of the question.
    """
    return {
        "cell": str(ready.cell),
        "stack": ready.stack.lock_digest,
        "checkpoint": identity_of(ready.checkpoint),
        **loading_facts(ready.model),
        "prompts": {name: prompt.model_dump() for name, prompt in ready.model.prompts.items()},
        "inputs": digest_of_inputs(ready.checkpoint),
        "threads": ready.threads,
    }

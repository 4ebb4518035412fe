"""What all jobs of a cell say of its model, and the facts that their results depend on."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from samebits.jobs.records import CellModel
from samebits.records.inputs import Inputs

if TYPE_CHECKING:
    from pathlib import Path

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId, Variant
    from samebits.stacks.build import Stack

SEVERAL = 4
"""Threads of a large model, on any machine: another number sums in another order."""
LARGE = 4 << 30
"""Bytes of a checkpoint from which on its jobs have several threads.

Below, several jobs fit in memory side by side, and keep more cores busy than several threads of one
job do, as only its forwards use them.
"""
NOT_CHOSEN = "the arguments of the model's forward were not read on any stack"


def threads_of(model: ModelSpec, checkpoint: Checkpoint, variant: Variant) -> int:
    """Return the threads of every job of a model's cells, in every stack and on every machine."""
    if model.threads is not None:
        return model.threads
    is_large = variant.device == "cpu" and (checkpoint.n_bytes or 0) >= LARGE
    return SEVERAL if is_large else 1


def model_of(model: ModelSpec, checkpoint: Checkpoint) -> CellModel:
    """Return where a job loads the model of a cell from, with its prompts and inputs."""
    return CellModel(
        **loading(model, checkpoint),
        prompts=model.prompts,
        inputs=inputs_of(checkpoint),
    )


def job_of(cell: CellId, model: ModelSpec, checkpoint: Checkpoint, path: Path) -> dict[str, Any]:
    """Return the fields that every job of a cell has; its log has the name of ``path``."""
    return {
        "cell": cell,
        "threads": threads_of(model, checkpoint, cell.variant),
        "timeout": model.timeout,
        "budget": model.budget,
        "log": str(path.with_suffix(".log")),
        "model": model_of(model, checkpoint),
    }


def loading(model: ModelSpec, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of a ModelSource: where a job loads a model from, and how."""
    return {
        "source": checkpoint.source,
        "revision": checkpoint.revision,
        "trust_remote_code": model.trust_remote_code,
        "imports": model.imports,
        "model_class": model.model_class,
        "load": model.load,
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


def follows_from(
    cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack
) -> dict[str, Any]:
    """Return everything that determines a cell's results, without the question itself.

    A result file is named after the digest of this and of the question.
    """
    return {
        "cell": str(cell),
        "stack": stack.lock_digest,
        "checkpoint": identity_of(checkpoint),
        **loading_facts(model),
        "prompts": {name: prompt.model_dump() for name, prompt in model.prompts.items()},
        "inputs": digest_of_inputs(checkpoint),
        "threads": threads_of(model, checkpoint, cell.variant),
    }

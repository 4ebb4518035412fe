"""The fields that all jobs of a cell share, and the digest inputs that their results depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samebits.records.inputs import Inputs

if TYPE_CHECKING:
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.stacks.build import Stack

NOT_CHOSEN = "the arguments of the model's forward were not read on any stack"
THREADS = 1
"""Threads of a job. With one, its bits do not depend on the load of the machine."""


def common_job(kind: str, cell: CellId, model: ModelSpec, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of every kind of job; each kind adds its question and its result path."""
    return {
        "kind": kind,
        "cell": cell.model_dump(mode="json"),
        "threads": THREADS,
        "timeout": model.timeout,
        "budget": model.budget,
        "model": {
            "source": checkpoint.source,
            "revision": checkpoint.revision,
            "trust_remote_code": model.trust_remote_code,
            "prompts": prompts_of(model),
            "inputs": inputs_of(checkpoint),
        },
    }


def prompts_of(model: ModelSpec) -> dict[str, Any]:
    """Return a model's prompts in the form of a job."""
    return {
        name: prompt.model_dump(mode="json", exclude_none=True)
        for name, prompt in model.prompts.items()
    }


def inputs_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Return where a job finds its inputs, or the reason why there are none."""
    return (checkpoint.inputs or Inputs(reason=NOT_CHOSEN)).model_dump(mode="json")


def digest_of_inputs(checkpoint: Checkpoint) -> list[str]:
    """Return the digest inputs for a model's inputs: their digest, and why there are none."""
    inputs = checkpoint.inputs or Inputs(reason=NOT_CHOSEN)
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
        "checkpoint": [checkpoint.source, checkpoint.revision, checkpoint.digest],
        "trust_remote_code": model.trust_remote_code,
        "prompts": {name: prompt.model_dump() for name, prompt in model.prompts.items()},
        "inputs": digest_of_inputs(checkpoint),
        "threads": THREADS,
    }

"""What the jobs of a cell tell its stack alike, and what their answers follow from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samebits.records.inputs import Inputs

if TYPE_CHECKING:
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.stacks.build import Stack

NOT_CHOSEN = "no stack was asked what the model's forward takes"
THREADS = 1
"""Threads of a job: its bits must not depend on what runs beside it."""


def common_job(kind: str, cell: CellId, model: ModelSpec, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a job of any kind says; its kind adds where to leave what was asked."""
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
    """Return a model's prompts as a job spells them."""
    return {
        name: prompt.model_dump(mode="json", exclude_none=True)
        for name, prompt in model.prompts.items()
    }


def inputs_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Return where a job finds what it feeds, or why there is nothing."""
    return (checkpoint.inputs or Inputs(reason=NOT_CHOSEN)).model_dump(mode="json")


def digest_of_inputs(checkpoint: Checkpoint) -> list[str]:
    """Return what answers follow from where a model is fed: the inputs, or why there are none."""
    inputs = checkpoint.inputs or Inputs(reason=NOT_CHOSEN)
    return [inputs.digest, inputs.reason]


def follows_from(
    cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack
) -> dict[str, Any]:
    """Return what decides every answer about a cell: a digest of it, and of the question, names one."""
    return {
        "cell": str(cell),
        "stack": stack.lock_digest,
        "checkpoint": [checkpoint.source, checkpoint.revision, checkpoint.digest],
        "trust_remote_code": model.trust_remote_code,
        "prompts": {name: prompt.model_dump() for name, prompt in model.prompts.items()},
        "inputs": digest_of_inputs(checkpoint),
        "threads": THREADS,
    }

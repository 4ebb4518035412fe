"""The job that traces one training step of a cell: it runs the step without and with a trace.

Writes the file that samebits/questions/training/step_trace.py reads, completely or not at all.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from samebits_probe.model import heap, load
from samebits_probe.process import files, hashing, memory, progress, threads
from samebits_probe.process.failure import PhaseFailed, Unknown, describe, phase
from samebits_probe.questions.training import batches, origin
from samebits_probe.questions.training.batches import Batch, NoLoss
from samebits_probe.questions.training.learner import Learner, Trained
from samebits_probe.questions.training.origin import Places
from samebits_probe.questions.training.step import NotTrained, places_of, prompts_of, subject
from samebits_probe.questions.training.tasks import TraceJob
from samebits_probe.questions.training.traced import StepTrace
from samebits_probe.trace.values import digest
from samebits_wire import formats
from samebits_wire.jobs import TaskJob

Facts = dict[str, Any]
_TRACED_COST = 100
"""Cost of a step with every operation hashed, in plain forwards of a small model."""
_COPIES = 6
"""Multiples of the model that a traced step holds."""


def run(job: TraceJob) -> None:
    """Trace one training step and write the result."""
    head = hashing.head("step-trace", formats.STEP_TRACE)
    write(job, job["task"]["result"], head, lambda: _traced(job))


def write(job: TaskJob, path: str, head: Facts, facts_of: Callable[[], Facts]) -> None:
    """Write what a job that explains a step observes, or why it observes nothing."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    facts: Facts = {"failure": None}
    try:
        facts |= facts_of()
    except (NoLoss, NotTrained, Unknown) as reason:
        facts["failure"] = describe("training", LookupError(str(reason)))
    except PhaseFailed as failed:
        facts["failure"] = failed.failure
    except Exception as error:  # noqa: BLE001  a defect of a probe is reported like any failure
        traceback.print_exc()
        facts["failure"] = describe("probe", error)
    files.write_sealed(Path(path), head | {"cell": job["cell"]} | facts)


def _traced(job: TraceJob) -> Facts:
    options = job["task"]
    source = load.Source.of(job["model"], job["cell"]["variant"])
    with subject(source, large=options["large"]) as (loaded, of, _):
        size = load.n_bytes(loaded.model)
        if options["rung"] == "float64":
            size += load.n_bytes(loaded.model, torch.float64)
        memory.require(_COPIES * size, int(job.get("slots", 1)))
        progress.begin("trace of a training step")
        where = places_of(loaded, of)
        batch = batch_of(job, loaded, options["batch"])
        learner = learner_of(loaded, options["rung"])
        trace, facts = traced(learner, batch, where, backward=options["backward"])
        facts["trace"] = {
            **hashing.head("trace", formats.TRACE),
            "cell": job["cell"],
            "prompt": batch.name,
            "what": "training",
            "rung": options["rung"],
            **facts["trace"],
        }
        return facts | {
            "belongs": trace.belongs(),
            "parameters": [name for name, _ in learner.model.named_parameters()],
            "leaks": sorted(learner.leaks),
        }


def batch_of(job: TaskJob, loaded: load.Loaded, name: str) -> Batch:
    """Return a batch of a model by its name."""
    prompts = prompts_of(job, loaded, loaded.model.dtype)
    for batch in batches.batches(loaded.model, loaded.head, prompts):
        if batch.name == name:
            return batch
    raise NotTrained(f"it takes no batch {name}")


def learner_of(loaded: load.Loaded, rung: str) -> Learner:
    """Return a model that learns on a rung, and takes its time."""
    learner = Learner(loaded.model, loaded.model.dtype)
    if rung == "float64":
        with phase("promote"):
            learner = learner.in_float64()
    learner.cost = _TRACED_COST
    return learner


def traced(
    learner: Learner, batch: Batch, where: Places, *, backward: bool
) -> tuple[StepTrace, Facts]:
    """Run a step without and with a trace; return the trace and its facts.

    Marked are logits, losses and, with ``backward``, the gradients of the checkpoint's tensors.
    """
    started = time.perf_counter()
    marked: dict[str, str] = {}
    plain = _digests(learner, _step(learner, batch, backward=backward))
    inputs = {n: value for n, value in batch.kwargs.items() if isinstance(value, torch.Tensor)}
    trace = StepTrace(learner.model, inputs, coarse=learner.promoted is not None)
    with phase("trace of a training step"), trace:
        trained = _step(learner, batch, backward=backward)
        trace.mark("logits", trained.logits)
        for name, value in trained.others.items():
            trace.mark(name, value)
        trace.mark("loss", trained.loss)
        if backward:
            gradients, _, _ = origin.gradients(learner.model, where)
            for name, gradient in gradients.items():
                trace.mark(gradient_mark(name), gradient)
                marked[gradient_mark(name)] = name
    same = plain == _digests(learner, trained)
    facts = trace.facts() | {
        "effect": "none" if same else "changed the bits",
        "seconds": {"traced": round(time.perf_counter() - started, 4)},
    }
    learner.model.zero_grad(set_to_none=True)
    return trace, {"trace": facts, "gradients": marked}


def gradient_mark(name: str) -> str:
    """Return the name of the mark of a tensor's gradient."""
    return f"gradient of {name}"


def _step(learner: Learner, batch: Batch, *, backward: bool) -> Trained:
    learner.model.zero_grad(set_to_none=True)
    with learner.taking(batch):
        if backward:
            return learner.learn(batch.kwargs, "traced step")
        return learner.forward(batch.kwargs, "traced forward")


def _digests(learner: Learner, trained: Trained) -> list[str]:
    tensors = [trained.loss.detach(), *learner.gradients().values()]
    return [digest(tensor, None) for tensor in tensors]

"""The job that trains one cell for one step.

Expects the job of a cell with ``training``: result (a path), values (whether to compute in float64,
too, and to store tensors), relations and large. Writes the file that samebits/records/training.py
reads, completely or not at all.

A large model is not trained: a made model of its kind answers in its place, whose weights every
release makes from the same seed. Both sides of a comparison must hold the same weights, so the file
says which they are.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samebits_probe.model import determinism, heap, load, small
from samebits_probe.model.checkpoint import Checkpoint, NoCheckpoint
from samebits_probe.model.feed import Feed
from samebits_probe.model.tensor import Keeper, tensor_hash
from samebits_probe.process import files, hashing, memory, progress, threads
from samebits_probe.process.failure import PhaseFailed, Unknown, describe, in_one_line
from samebits_probe.process.hashing import ALGORITHM
from samebits_probe.training import batches, origin, relations, signals
from samebits_probe.training.batches import NoLoss
from samebits_probe.training.learner import Learner

if TYPE_CHECKING:
    import torch

    from samebits_probe.process.jobs import TrainingJob
    from samebits_probe.training.batches import Batch
    from samebits_probe.training.origin import Places

FORMAT_VERSION = 1
Facts = dict[str, Any]
_COPIES = 6
"""Multiples of the model that a step holds: gradients, both moments, and the weights before."""


class NotTrained(Exception):  # noqa: N818  that a model is not trained is a result
    """The model is not trained; the message says why."""


def run(job: TrainingJob) -> None:
    """Train one cell for one step and write what it computed."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    started = time.perf_counter()
    facts: Facts = {"failure": None, "reason": ""}
    try:
        facts |= _trained(job, started)
    except (NoLoss, NotTrained, Unknown) as reason:
        facts["reason"] = str(reason)
    except PhaseFailed as failed:
        facts["failure"] = failed.failure
    except Exception as error:  # noqa: BLE001  a model that raises in training is a result
        facts["failure"] = describe("training", error)
    facts["seconds"] = round(time.perf_counter() - started, 4)
    record = {
        "format": "samebits-training",
        "format_version": FORMAT_VERSION,
        "hash_algorithm": ALGORITHM,
        "cell": job["cell"],
        **facts,
    }
    files.write_sealed(Path(job["training"]["result"]), record)


def _trained(job: TrainingJob, started: float) -> Facts:
    source = load.Source.of(job["model"], job["cell"]["variant"])
    progress.begin("load")
    loaded = load.load(source)
    with ExitStack() as stack:
        if load.n_bytes(loaded.model) > small.LIMIT and not job["training"]["large"]:
            try:
                made = stack.enter_context(small.made(loaded, source))
            except small.NoneMade as reason:
                msg = f"it is too large, and no small model of its kind can be made: {reason}"
                raise NotTrained(msg) from reason
            loaded = loaded._replace(model=made.model)
            return _step(job, loaded, source.at(str(made.folder)), started) | {
                "asked_of": made.facts
            }
        return _step(job, loaded, source, started)


def _step(job: TrainingJob, loaded: load.Loaded, source: load.Source, started: float) -> Facts:
    asked = job["training"]
    memory.require(_COPIES * load.n_bytes(loaded.model), int(job.get("slots", 1)))
    progress.begin("training")
    try:
        checkpoint: Checkpoint | None = Checkpoint.of(source)
    except NoCheckpoint:
        checkpoint = None
    where = origin.places(loaded.model, checkpoint)
    weights = _digest_of(checkpoint)
    dtype = loaded.model.dtype
    prompts = _prompts(job, loaded, dtype)
    made = batches.batches(loaded.model, loaded.head, prompts)
    learner = Learner(loaded.model, dtype)
    if not _repeats(learner, made[0]):
        raise NotTrained(determinism.NOT_REPEATED)
    keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
    facts: Facts = {"weights": weights, "uncertain": sorted(where.uncertain), "float64": None}
    facts["no_float64"] = ""
    if asked["values"]:
        facts |= _in_float64(learner, made, where, keeper)
    facts["own"] = signals.signals(learner, made, where, keeper)
    facts["relations"] = None
    if asked["relations"]:
        until = started + float(job["budget"])
        facts["relations"] = relations.observe(learner, made[0], loaded.head, until)
    return facts


def _in_float64(learner: Learner, made: list[Batch], where: Places, keeper: Keeper) -> Facts:
    """Return the signals of a copy in float64, or why there are none."""
    try:
        progress.begin("training in float64")
        return {"float64": signals.signals(learner.in_float64(), made, where, keeper)}
    except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
        return {"no_float64": in_one_line(error)}


def _prompts(job: TrainingJob, loaded: load.Loaded, dtype: torch.dtype) -> dict[str, Facts]:
    if getattr(loaded.model, "main_input_name", "input_ids") == "input_ids":
        return {}
    feed = Feed(job["model"], dtype, job["cell"]["variant"]["device"])
    return {name: dict(inputs.kwargs) for name, inputs in feed.all(None)}


def _repeats(learner: Learner, batch: Batch) -> bool:
    """Return True if two training forwards with their backward give the same bytes."""
    seen = []
    for _ in range(2):
        loss = learner.learn(batch.kwargs, "repeated").loss.detach()
        seen.append(
            (tensor_hash(loss), {n: tensor_hash(g) for n, g in learner.gradients().items()})
        )
    return seen[0] == seen[1]


def _digest_of(checkpoint: Checkpoint | None) -> str:
    """Return one digest of the names and the content of a checkpoint's tensors; '' without one."""
    if checkpoint is None:
        return ""
    digest = hashing.hasher(b"")
    for name in sorted(checkpoint):
        digest.update(f"{name}:{tensor_hash(checkpoint.tensor(name))}".encode())
    return str(digest.hexdigest())

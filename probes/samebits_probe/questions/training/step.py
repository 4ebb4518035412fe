"""The job that trains one cell for one step.

Writes the file that samebits/questions/training/records.py reads, completely or not at all.

A large model is not trained: a made model of its kind answers in its place, whose weights every
release makes from the same seed. Both sides of a comparison must hold the same weights, so the file
says which they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import determinism, heap, load, small, targets
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.feed import Feed
from samebits_probe.model.tensor import Keeper, tensor_hash
from samebits_probe.process import files, hashing, memory, progress, threads
from samebits_probe.process.calls import CALLS
from samebits_probe.process.failure import PhaseFailed, Unknown, describe, in_one_line
from samebits_probe.questions.training import batches, origin, pictured, relations, signals
from samebits_probe.questions.training.batches import Batch, NoLoss
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.origin import Places
from samebits_probe.questions.training.tasks import StepJob, TrainingTask
from samebits_probe.questions.training.way import Setting
from samebits_wire import formats
from samebits_wire.jobs import TaskJob

Facts = dict[str, Any]


class Copies(NamedTuple):
    """How often a job of training holds the parameters of its model, at the most."""

    own: int
    """In their dtype."""
    in_float64: int

    def require(self, model: Any, slots: int) -> None:
        """Raise a failure of phase ``memory`` if they do not fit."""
        own, twin = load.n_bytes(model), load.n_bytes(model, torch.float64)
        memory.require(self.own * own + self.in_float64 * twin, slots)


_COPIES = Copies(own=2, in_float64=6)
"""The results of two ways; and a copy with its gradients, its moments, and the weights before an update."""


class NotTrained(Exception):  # noqa: N818  that a model is not trained is a result
    """The model is not trained; the message says why."""


def run(job: StepJob) -> None:
    """Train one cell for one step and write what it computed."""
    started = time.perf_counter()
    write_trained(
        job,
        job["task"],
        ("training", formats.TRAINING),
        lambda facts: facts.update(_trained(job, started)),
    )


def write_trained(
    job: TaskJob, task: TrainingTask, form: tuple[str, int], train: Callable[[Facts], None]
) -> None:
    """Train one cell and write the facts that ``train`` adds, with why there are no more.

    ``form`` is the name and the version of the file's format.
    """
    name, version = form
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    started = time.perf_counter()
    facts: Facts = {"failure": None, "reason": ""}
    try:
        train(facts)
    except (NoLoss, NotTrained, Unknown) as reason:
        facts["reason"] = str(reason)
    except PhaseFailed as failed:
        facts["failure"] = failed.failure
    except Exception as error:  # noqa: BLE001  a model that raises in training is a result
        facts["failure"] = describe(name, error)
    facts["seconds"] = round(time.perf_counter() - started, 4)
    record = hashing.head(name, version) | {"cell": job["cell"], "entered": CALLS.table(), **facts}
    files.write_sealed(Path(task["result"]), record)


def _trained(job: StepJob, started: float) -> Facts:
    source = load.Source.of(job["model"], job["cell"]["variant"])
    with subject(source, large=job["task"]["large"]) as (loaded, of, asked_of):
        facts = _step(job, loaded, of, started)
        return facts if asked_of is None else facts | {"asked_of": asked_of}


@contextmanager
def subject(
    source: load.Source, *, large: bool
) -> Iterator[tuple[load.Loaded, load.Source, Facts | None]]:
    """Load what is trained: a model, or a made one of its kind, with its source and its facts."""
    progress.begin("load")
    loaded = load.load(source)
    if large or load.n_bytes(loaded.model) <= small.LIMIT:
        yield loaded, source, None
        return
    with ExitStack() as stack:
        try:
            made = stack.enter_context(small.made(loaded, source))
        except small.NoneMade as reason:
            raise NotTrained(
                f"it is too large, and no small model of its kind can be made: {reason}"
            ) from reason
        yield loaded._replace(model=made.model), source.at(str(made.folder)), made.facts


def _step(job: StepJob, loaded: load.Loaded, source: load.Source, started: float) -> Facts:
    task = job["task"]
    _COPIES.require(loaded.model, int(job.get("slots", 1)))
    progress.begin("training")
    checkpoint = Checkpoint.of_or_none(source)
    where = origin.places(loaded.model, checkpoint)
    weights = _digest_of(checkpoint)
    dtype = loaded.model.dtype
    made = batches.batches(loaded.model, loaded.head, prompts_of(job, loaded, dtype))
    learner = Learner(loaded.model, dtype)
    if not _repeats(learner, made[0]):
        raise NotTrained(determinism.NOT_REPEATED)
    keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
    facts: Facts = {"weights": weights, "uncertain": sorted(where.uncertain), "float64": None}
    facts["no_float64"] = ""
    if task["values"]:
        facts |= _in_float64(learner, made, where, keeper)
    facts["own"] = signals.signals(learner, made, where, keeper)
    counts = "labels" in made[0].kwargs  # Trainer counts labels of that name
    facts["linear"] = sorted(origin.linear(loaded.model, where))
    facts["takes_items"] = batches.takes_items(loaded.model) if counts else None
    facts["relations"] = None
    if task["relations"]:
        until = started + float(job["budget"])
        images = next((batch for batch in made if batch.name == batches.IMAGES), None)
        setting = Setting(made[0], loaded.head, images)
        facts["relations"] = relations.observe(learner, setting, until)
    return facts


def _in_float64(learner: Learner, made: list[Batch], where: Places, keeper: Keeper) -> Facts:
    try:
        progress.begin("training in float64")
        return {"float64": signals.signals(learner.in_float64(), made, where, keeper)}
    except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
        return {"no_float64": in_one_line(error)}


def places_of(loaded: load.Loaded, source: load.Source) -> Places:
    """Return where the tensors of the checkpoint are in a model as it was loaded."""
    return origin.places(loaded.model, Checkpoint.of_or_none(source))


def prompts_of(job: TaskJob, loaded: load.Loaded, dtype: torch.dtype) -> dict[str, Facts]:
    """Return the cell's inputs that a step is fed: all of them, or those with images among token ids."""
    main = getattr(loaded.model, "main_input_name", "input_ids")
    takes_tokens = main == "input_ids" and not targets.is_contrastive(loaded.model)
    feed = Feed(job["model"], dtype, job["cell"]["variant"]["device"])
    names = (pictured.PROMPT,) if takes_tokens else None
    return {name: dict(inputs.kwargs) for name, inputs in feed.all(None, loaded.model, names)}


def _repeats(learner: Learner, batch: Batch) -> bool:
    digests = []
    for _ in range(2):
        loss = learner.learn(batch.kwargs, "repeated").loss.detach()
        digests.append(
            (tensor_hash(loss), {n: tensor_hash(g) for n, g in learner.gradients().items()})
        )
    return digests[0] == digests[1]


def _digest_of(checkpoint: Checkpoint | None) -> str:
    """Return one digest of the names and the content of a checkpoint's tensors; '' without one."""
    if checkpoint is None:
        return ""
    digest = hashing.hasher(b"")
    for name in sorted(checkpoint):
        digest.update(f"{name}:{tensor_hash(checkpoint.tensor(name))}".encode())
    return str(digest.hexdigest())

"""The job that trains one cell by transformers' own Trainer.

Writes the file that samebits/questions/trainer/records.py reads, completely or not at all.

It is a job beside the training step, as accelerate is in its process: no step, and no other
observation, runs in that environment.
"""

from __future__ import annotations

import tempfile
from typing import Any

from samebits_probe.model import load
from samebits_probe.model.tensor import Keeper
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.trainer import added, trainer
from samebits_probe.questions.trainer.best import best_at_end
from samebits_probe.questions.trainer.evaluation import evaluated
from samebits_probe.questions.trainer.placed import places
from samebits_probe.questions.trainer.tasks import RunJob
from samebits_probe.questions.training import batches
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.step import (
    Copies,
    NotTrained,
    places_of,
    prompts_of,
    subject,
    write_trained,
)
from samebits_wire import formats

Facts = dict[str, Any]
_COPIES = Copies(own=1, in_float64=8)
"""Of the copy: gradients, two moments, the weights before, and those behind each of two runs."""


def run(job: RunJob) -> None:
    """Train one cell by Trainer and write what it did."""
    write_trained(job, job["task"], ("trainer", formats.TRAINER), lambda facts: _train(job, facts))


def _train(job: RunJob, facts: Facts) -> None:
    try:
        progress.begin("accelerate")
        facts["accelerate"] = added.use(job["task"]["folder"])
        facts |= _trained(job)
    except ImportError as error:
        raise NotTrained(f"accelerate cannot be used here: {in_one_line(error)}") from error


def _trained(job: RunJob) -> Facts:
    facts: Facts = {"arguments": trainer.arguments()}
    source = load.Source.of(job["model"], job["cell"]["variant"])
    with subject(source, large=job["task"]["large"]) as (loaded, of, _asked_of):
        return facts | _runs(job, loaded, of)


def _runs(job: RunJob, loaded: load.Loaded, source: load.Source) -> Facts:
    _COPIES.require(loaded.model, int(job.get("slots", 1)))
    progress.begin("trainer")
    where = places_of(loaded, source)
    dtype = loaded.model.dtype
    batch = batches.batches(loaded.model, loaded.head, prompts_of(job, loaded, dtype))[0]
    learner = Learner(loaded.model, dtype)
    keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
    facts: Facts = {"uncertain": sorted(where.uncertain), "float64": None, "no_float64": ""}
    with tempfile.TemporaryDirectory() as folder:
        bench = trainer.Bench(trainer.Rows(batch), where, folder)
        facts |= _facts(bench, learner, keeper, job, loaded.head)
    if trainer.is_small(learner):
        inputs = {name: value for name, value in batch.kwargs.items() if name != "labels"}
        facts["placed"] = places(loaded.model, source, inputs)
    return facts


def _facts(bench: trainer.Bench, learner: Learner, keeper: Keeper, job: RunJob, head: str) -> Facts:
    facts = {
        "own": _evaluated_and_trained(bench, learner, keeper),
        "relations": bench.relation(learner, head),
        "lost": sorted(bench.lost),
        "ends": best_at_end(learner, bench.rows, bench.where),
    }
    if not job["task"]["values"]:
        return facts
    try:
        progress.begin("trainer in float64")
        twin = bench.in_float64(learner)
        return facts | {"float64": _evaluated_and_trained(bench, twin, keeper)}
    except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
        return facts | {"no_float64": in_one_line(error)}


def _evaluated_and_trained(bench: trainer.Bench, learner: Learner, keeper: Keeper) -> Facts:
    return {"evaluation": evaluated(learner, bench.rows), **bench.facts(learner, keeper)}

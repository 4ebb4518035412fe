"""The job of grafts in a training step: pieces of a reference's loss put into a candidate's step.

A donor leaves its labels, the arguments of its
loss, num_items_in_batch and the gradient of its loss at the logits. A patient tries them one by one,
then together, and compares loss and gradients with the donor's. Writes the file that
samebits/questions/training/step_graft.py reads, completely or not at all.

In float64 contents are compared as coarsely as in traces, so that rounding makes no difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import load
from samebits_probe.model.tensor import Keeper, stored
from samebits_probe.process import files, hashing, progress
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.training import origin
from samebits_probe.questions.training.batches import Batch
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.loss_calls import ARGUMENTS, ITEMS, LABELS, LossCalls, fitted
from samebits_probe.questions.training.origin import Places
from samebits_probe.questions.training.step import places_of, subject
from samebits_probe.questions.training.tasks import GraftJob
from samebits_probe.questions.training.trace import batch_of, learner_of, write
from samebits_probe.trace.values import Content
from samebits_wire import formats

LOSS_FUNCTION = "loss function"
"""All that a loss makes of the logits, as its gradient at them."""
Facts = dict[str, Any]
Digests = dict[str, str]
Names = tuple[list[str], list[str]]


def run(job: GraftJob) -> None:
    """Store pieces of the reference's loss, or try them in the candidate."""
    head = hashing.head(f"step-{job['task']['role']}", formats.STEP_GRAFT)
    write(job, job["task"]["result"], head, lambda: _facts(job))


def _facts(job: GraftJob) -> Facts:
    options = job["task"]
    source = load.Source.of(job["model"], job["cell"]["variant"])
    with subject(source, large=options["large"]) as (loaded, of, _):
        progress.begin("graft in a training step")
        where = places_of(loaded, of)
        batch = batch_of(job, loaded, options["batch"])
        steps = Steps(learner_of(loaded, options["rung"]), batch, where)
        keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
        if options["role"] == "donor":
            facts = steps.donated(keeper)
        else:
            donor = files.read_sealed(Path(options["donor"]))
            slope = stored(keeper.root, donor["slope"]) if donor["slope"] else None
            facts = steps.tried(donor, slope, (options["skipped"], options["without"]))
        return facts | {"leaks": sorted(steps.learner.leaks)}


class Steps(NamedTuple):
    """Training steps of a model on one batch."""

    learner: Learner
    batch: Batch
    where: Places

    def donated(self, keeper: Keeper) -> Facts:
        """Return the pieces of a release's loss, and the results of its step."""
        calls, slope, results = self._step(LossCalls())
        return {
            "results": results,
            "calls": [
                {
                    **call,
                    LABELS: call[LABELS].tolist(),
                    "is_float": call[LABELS].is_floating_point(),
                }
                for call in calls.calls
            ],
            "items": calls.items,
            "slope": None if slope is None else keeper.ref(slope),
        }

    def tried(self, donor: Facts, slope: torch.Tensor | None, names: Names) -> Facts:
        """Return which pieces of a donor make the step the donor's: one by one, then all of the call's."""
        own, own_slope, results = self._step(LossCalls())
        pieces, untried = _pieces(own, donor, self.batch)
        runs = [_compared((), results, donor["results"], names)]
        runs += [self._run({name: pieces[name]}, donor, names) for name in pieces]
        if len(pieces) > 1 and not any(run["same"] == run["of"] for run in runs):
            runs.append(self._run(pieces, donor, names))
        if slope is None or own_slope is None:
            untried.append(
                [LOSS_FUNCTION, "the loss is not a function of the logits that come back"]
            )
        elif slope.shape != own_slope.shape:
            untried.append([LOSS_FUNCTION, "the logits have another shape"])
        else:
            runs.append(self._run_with_slope(slope, donor, names))
        return {"tried": runs, "untried": untried}

    def _run(self, put: dict[str, list[Any]], donor: Facts, names: Names) -> Facts:
        try:
            _, _, results = self._step(LossCalls(put))
        except Exception as error:  # noqa: BLE001  a piece that does not fit is a result
            return _compared(tuple(put), {}, {}, names) | {"error": in_one_line(error)}
        return _compared(tuple(put), results, donor["results"], names)

    def _run_with_slope(self, slope: torch.Tensor, donor: Facts, names: Names) -> Facts:
        self.learner.model.zero_grad(set_to_none=True)
        with self.learner.taking(self.batch):
            logits = self.learner.forward(self.batch.kwargs, "grafted step").logits
        self.learner.back(logits, slope)
        results = self._gradients()
        # the loss itself is not computed then
        expected = {name: digest for name, digest in donor["results"].items() if name in results}
        return _compared((LOSS_FUNCTION,), results, expected, names)

    def _step(self, calls: LossCalls) -> tuple[LossCalls, torch.Tensor | None, Digests]:
        """Return the calls of the loss, its gradient at the logits, and the digests of the results."""
        self.learner.model.zero_grad(set_to_none=True)
        with self.learner.taking(self.batch), calls:
            trained = self.learner.forward(self.batch.kwargs, "grafted step")
        if trained.logits is not None and trained.logits.requires_grad:
            trained.logits.retain_grad()
        if trained.loss.requires_grad:
            self.learner.back(trained.loss)
        slope = trained.logits.grad if trained.logits is not None else None
        return calls, slope, {"loss": self._digest(trained.loss.detach())} | self._gradients()

    def _gradients(self) -> Digests:
        gradients, _, _ = origin.gradients(self.learner.model, self.where)
        return {name: self._digest(gradient) for name, gradient in gradients.items()}

    def _digest(self, tensor: torch.Tensor) -> str:
        return Content(tensor, None, coarse=self.learner.promoted is not None, scaled=True).digest()


def _pieces(own: LossCalls, donor: Facts, batch: Batch) -> tuple[dict[str, list[Any]], list[Any]]:
    """Return the pieces that differ, each with its value per call, and those that do not fit."""
    pieces: dict[str, list[Any]] = {}
    untried: list[Any] = []
    others = donor["calls"]
    if len(own.calls) != len(others):
        n = f"cross_entropy runs {len(own.calls)} times, and {len(others)} times in the reference"
        untried.append([LABELS, n])
    else:
        labels = [
            fitted(_labels(results), call[LABELS], batch.n_rows, results["ignore_index"])
            for call, results in zip(own.calls, others, strict=True)
        ]
        if any(target is None for target in labels):
            untried.append([LABELS, "they are for other positions than this release's scores"])
        elif any(
            not torch.equal(target, call[LABELS])  # noqa: TID251  labels are integers
            for call, target in zip(own.calls, labels, strict=True)
        ):
            pieces[LABELS] = labels
        for name in ARGUMENTS:
            values = [results[name] for results in others]
            if values != [call[name] for call in own.calls]:
                pieces[name] = values
    if own.items:
        items = donor["items"] or [None] * len(own.items)
        if len(items) == len(own.items) and items != own.items:
            pieces[ITEMS] = items
    elif any(number is not None for number in donor["items"]):
        untried.append([ITEMS, "this release's loss does not go through the function that divides"])
    return pieces, untried


def _labels(call: Facts) -> torch.Tensor:
    return torch.tensor(call[LABELS], dtype=torch.float32 if call["is_float"] else torch.int64)


def _compared(put: tuple[str, ...], results: Digests, expected: Digests, names: Names) -> Facts:
    """Return how many results of a run are the donor's, as :class:`samebits.records.graft.Try`."""
    skipped, without = names
    compared = [
        name
        for name in dict.fromkeys((*expected, *results))
        if name not in skipped and (name in without or (name in results and name in expected))
    ]
    differing = [name for name in compared if results.get(name) != expected.get(name)]
    return {
        "suspects": list(put),
        "same": len(compared) - len(differing),
        "of": len(compared),
        "first": differing[0] if differing else "",
        "error": "",
    }

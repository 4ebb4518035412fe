"""transformers' own Trainer on seeded rows, watched: what it built, and what the model received.

Three runs start from the same weights: four rows one by one, the four rows in four accumulated
micro-batches, and the four rows as one batch. The latter two run again with label smoothing, two more end
with a step of one row, and one goes on from the checkpoint that the first one writes behind two rows. Beside that only what keeps a
run small and quiet is an argument of them; what shapes the training is the release's default. The
results have the forms of samebits/questions/trainer/records.py.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import tempfile
import weakref
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import torch

from samebits_probe.model import load, small
from samebits_probe.model.tensor import Keeper, same_bytes
from samebits_probe.process import progress
from samebits_probe.questions.trainer.watch import (
    STOP,
    Stop,
    Watch,
    at_stop,
    callback,
    logged,
    put_back,
    settings,
    watched,
    weights,
)
from samebits_probe.questions.training import relations
from samebits_probe.questions.training.batches import IGNORED, Batch
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.origin import Cut, Places
from samebits_probe.questions.training.relations import require_rows
from samebits_probe.questions.training.step import NotTrained
from samebits_probe.questions.training.way import NoMeaning, Relation, Results, Setting, Way

Facts = dict[str, Any]
ROWS = 4
"""Rows of the dataset; a batch with fewer is repeated."""


class Plan(NamedTuple):
    """How one run feeds the rows."""

    name: str
    batch: int
    """Rows of a micro-batch."""
    accumulated: int
    """Micro-batches of a step."""
    smoothing: float = 0.0
    """``label_smoothing_factor``."""


ROW_BY_ROW = Plan("row by row", 1, 1)
ACCUMULATED = Plan("accumulated", 1, ROWS)
ONE_BATCH = Plan("one batch", ROWS, 1)
PLANS = (ROW_BY_ROW, ACCUMULATED, ONE_BATCH)
_SMOOTHED = (Plan("smoothed, one batch", ROWS, 1, 0.1), Plan("smoothed, accumulated", 1, ROWS, 0.1))
_LEFT_OVER = (Plan("batches and a rest", 3, 1), Plan("accumulated and a rest", 1, 3))
"""Two steps; the second has a single row."""
_COMPARED = (ACCUMULATED, ONE_BATCH)
RELATION = "Trainer: rows accumulated = one batch"
SMOOTHED = "Trainer with label smoothing: rows accumulated = one batch"
LEFT_OVER = "Trainer: rows accumulated, and a rest = batches, and a rest"
RESUMED = "Trainer: stopped and resumed = without a stop"


class NoRows(NotTrained):
    """The batch cannot be given to Trainer row by row; the message says why."""


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):  # type: ignore[misc]
    """A batch as a dataset, one row after the other."""

    def __init__(self, batch: Batch) -> None:
        """Take a batch."""
        self.batch = batch
        self.kwargs = _unmasked(batch.kwargs)
        self.n = batch.n_rows
        for name, value in self.kwargs.items():
            if not isinstance(value, torch.Tensor) or not value.ndim or value.shape[0] != self.n:
                raise NoRows(f"{name} has no row for each label")

    def in_dtype(self, dtype: torch.dtype) -> Rows:
        """Return the same rows with their real numbers in ``dtype``."""
        rows = copy.copy(self)
        rows.kwargs = {
            name: value.to(dtype) if value.is_floating_point() else value
            for name, value in self.kwargs.items()
        }
        return rows

    def even(self) -> Rows:
        """Return the same rows with equally many labels in each, so that their mean is that of the batch."""
        labels = self.kwargs["labels"]
        if labels.ndim != 2:
            raise NoMeaning("its losses are means of micro-batches, of labels that are no row")
        counted = labels != IGNORED
        counted[:, 0] = False  # a causal loss leaves this one out
        n = int(counted.sum(1).min())
        if not n:
            raise NoMeaning("its losses are means of micro-batches, and a row has no label")
        rows = copy.copy(self)
        counted &= counted.cumsum(1) <= n
        rows.kwargs = self.kwargs | {"labels": labels.masked_fill(~counted, IGNORED)}
        return rows

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: value[index % self.n] for name, value in self.kwargs.items()}

    def index(self, received: Facts, row: int) -> int | None:
        """Return which row of the dataset a row of a received batch is; None if it is none."""
        shared = [name for name in self.kwargs if isinstance(received.get(name), torch.Tensor)]
        for index in range(self.n):
            pairs = [(received[name][row], self.kwargs[name][index]) for name in shared]
            if pairs and all(r.shape == o.shape and same_bytes(r.to(o.dtype), o) for r, o in pairs):
                return index
        return None


def _unmasked(kwargs: Facts) -> Facts:
    """Return the rows of a language model with a label for every token, as its collator makes them.

    The first token of a row then has a label that no loss counts, and that a count may include.
    """
    ids, mask, labels = (kwargs.get(n) for n in ("input_ids", "attention_mask", "labels"))
    if ids is None or mask is None or labels is None or labels.shape != ids.shape:
        return kwargs
    counted = labels != IGNORED
    if bool((labels[counted] != ids[counted]).any()):
        return kwargs  # the labels are not the tokens
    return kwargs | {"labels": ids.masked_fill(mask == 0, IGNORED)}


def arguments() -> dict[str, str]:
    """Return the arguments of TrainingArguments as the release sets them, as text.

    Those that a user must give, or that name files of this machine, are left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = made_arguments(folder)
        fields = [f.name for f in dataclasses.fields(made)]
        values = {name: _as_text(getattr(made, name)) for name in fields}
        return {name: value for name, value in values.items() if folder not in value}


def made_arguments(folder: str, **more: Any) -> Any:
    """Return arguments for this machine's CPU, and no more than ``more``."""
    module = importlib.import_module("transformers.training_args")
    return module.TrainingArguments(output_dir=folder, use_cpu=True, report_to="none", **more)


def _as_text(value: Any) -> str:
    """Return a value as a user writes it, with what is empty as None."""
    if isinstance(value, Enum):
        return str(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    return "None" if value in (None, "", [], {}, ()) else str(value)


class Run(NamedTuple):
    """What one run did."""

    facts: Facts
    results: Results
    """Loss, norms, and every weight behind the run."""
    stop: Stop | None = None
    """Where it wrote a checkpoint; None: it wrote none."""


class Bench:
    """Runs Trainer with a learner; the model's weights are afterwards as before."""

    def __init__(self, rows: Rows, where: Places, folder: str) -> None:
        """Take rows, the places of their model's tensors, and a folder for checkpoints, which is empty."""
        self.rows = rows
        self.where = where
        self.folder = folder
        self.done: dict[tuple[Learner, str], Run] = {}
        self.twins: dict[Learner, Learner] = {}
        self.lost: set[str] = set()
        """Tensors of the checkpoint that a resumed training begins without."""

    def run(self, learner: Learner, plan: Plan) -> Run:
        """Return what a plan does with a learner's model, which is tried once."""
        key = (learner, plan.name)
        if key not in self.done:
            config = settings(learner.model)
            with restored(learner.model):
                stops = plan is ROW_BY_ROW and is_small(learner)
                stop = Stop(f"{self.folder}/{len(self.done)}") if stops else None
                run = _run(learner, self.rows, plan, self.where, stop)
                run.facts["config"] = _changed_settings(config, settings(learner.model))
                self.done[key] = run
        return self.done[key]

    def in_float64(self, learner: Learner) -> Learner:
        """Return the learner's copy in float64, which is made once."""
        if learner not in self.twins:
            self.twins[learner] = learner.in_float64()
        return self.twins[learner]

    def facts(self, learner: Learner, keeper: Keeper) -> Facts:
        """Return what all plans do."""
        runs: Facts = {}
        for number, plan in enumerate(PLANS, 1):
            progress.tick(f"Trainer, {plan.name}", number, len(PLANS))
            run = self.run(learner, plan)
            weights = {name: keeper.ref(run.results[name]) for name in run.facts["weights"]}
            runs[plan.name] = run.facts | {"weights": weights}
            if plan not in _COMPARED and not is_small(learner):
                run.results.clear()
        return {"runs": runs, "leaks": sorted(learner.leaks)}

    def relation(self, learner: Learner, head: str) -> Facts:
        """Return whether accumulated rows teach what they teach as one batch, and whether a stop changes nothing.

        The weights behind the learner's runs are then given up: nothing else compares them.
        """
        judge = relations.Judge(learner, lambda: self.in_float64(learner))
        setting = Setting(self.rows.batch, head)
        judge.relation(Relation(RELATION, self._ways), setting)
        judge.relation(Relation(SMOOTHED, self._smoothed), setting)
        judge.relation(Relation(LEFT_OVER, self._with_a_rest), setting)
        judge.relation(Relation(RESUMED, self._with_a_stop), setting)
        for (trained, _), run in self.done.items():
            if trained is learner:
                run.results.clear()
        return {
            "relations": judge.relations,
            "inapplicable": judge.inapplicable,
            "no_float64": judge.no_float64,
        }

    def _ways(self, learner: Learner, _setting: Setting) -> tuple[Way, Way]:
        bench = self._of_means(learner)
        return bench._way(ONE_BATCH), bench._way(ACCUMULATED)

    def _with_a_rest(self, learner: Learner, _setting: Setting) -> tuple[Way, Way]:
        if not is_small(learner):
            raise NoMeaning("a rest is tried with small models only, which show it as well")
        batches, accumulated = map(self._of_means(learner)._way, _LEFT_OVER)
        return batches, accumulated

    def _of_means(self, learner: Learner) -> Bench:
        """Return a bench whose rows have the same gradients accumulated as in one batch.

        Raises:
            NoMeaning: they are not.

        """
        require_rows(learner)
        if getattr(learner.model.config, "output_router_logits", False):
            raise NoMeaning("its router loss is that of a whole batch, by design")
        first = self.run(learner, ACCUMULATED).facts["received"]
        counted = {row for forward in first for row in forward["counts"]}
        if len(counted) < 2 or all(forward["items"] is not None for forward in first):
            return self
        # its losses are means of micro-batches, which are that of a batch where each counts as many labels
        bench = Bench(self.rows.even(), self.where, f"{self.folder}/even")
        _require_mean(learner, bench.rows)
        return bench

    def _smoothed(self, learner: Learner, _setting: Setting) -> tuple[Way, Way]:
        require_rows(learner)
        if not is_small(learner):
            raise NoMeaning(
                "label smoothing is tried with small models only, which show it as well"
            )
        first = self.run(learner, ACCUMULATED).facts["received"]
        if any(forward["items"] is None for forward in first):
            raise NoMeaning("Trainer divides the losses of micro-batches itself")
        bench = Bench(self.rows.even(), self.where, f"{self.folder}/smoothed")
        whole, parts = map(bench._way, _SMOOTHED)
        return whole, parts

    def _way(self, plan: Plan) -> Way:
        return lambda learner: self.run(learner, plan).results

    def _with_a_stop(self, learner: Learner, _setting: Setting) -> tuple[Way, Way]:
        if not is_small(learner):
            raise NoMeaning("the checkpoints of a training are written for small models only")
        return self._behind_the_stop, self._resumed

    def _behind_the_stop(self, learner: Learner) -> Results:
        """Return what the steps behind the stop compute in a run that does not stop."""
        run = self.run(learner, ROW_BY_ROW)
        behind = {name: run.results[name] for name in run.facts["weights"]}
        return _later(run.facts["losses"][STOP:], run.facts["received"][STOP:]) | behind

    def _resumed(self, learner: Learner) -> Results:
        """Return what they compute from the checkpoint that Trainer wrote at the stop."""
        stop = self.run(learner, ROW_BY_ROW).stop
        assert stop is not None
        if stop.refused is not None:
            raise stop.refused
        watch = Watch(learner, self.rows.in_dtype(learner.promoted or learner.dtype))
        before = weights(learner, self.where)
        with restored(learner.model):
            _train(watch, ROW_BY_ROW, self.where, stop, resumes=True)
            resumed = weights(learner, self.where)
        self.lost |= {
            name
            for name, tensor in stop.resumed.items()
            if same_bytes(tensor, before[name]) and not same_bytes(tensor, stop.saved[name])
        }
        return _later(watch.losses, watch.received) | resumed


def _require_mean(learner: Learner, rows: Rows) -> None:
    """Raise NoMeaning unless a model's own loss of a batch is the mean of those of its rows."""
    batch = torch.utils.data.default_collate([rows[i] for i in range(ROWS)])
    with torch.no_grad():
        whole = learner.forward(batch).loss
        parts = [
            learner.forward({name: value[i : i + 1] for name, value in batch.items()}).loss
            for i in range(ROWS)
        ]
    if float((torch.stack(parts).mean() - whole).abs()) > _NO_MEAN * float(whole.abs()):
        raise NoMeaning("its loss of a batch is not the mean of those of its rows")


_NO_MEAN = 1e-2
"""Part of a loss by which it is another number than a mean, be it one of bfloat16."""
OPTIMIZER = "adamw_torch"
"""Not the default, which is fused in some releases: then all weights would differ by rounding."""


def is_small(learner: Learner) -> bool:
    """Return True for a model of which a checkpoint is soon written, and more runs fit into memory."""
    return load.n_bytes(learner.model) <= small.LIMIT


def _later(losses: list[Any], received: list[Facts]) -> Results:
    """Return the losses of some steps, and the rows that the model received, -1 for one of no row."""
    rows = [-1 if row is None else row for forward in received for row in forward["rows"]]
    numbers = {"loss": [float(loss) for loss in losses], "rows": rows}
    return {name: torch.tensor(of, dtype=torch.float64) for name, of in numbers.items()}


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in tensors}


def _changed_settings(before: Facts, after: Facts) -> dict[str, list[str]]:
    """Return the settings that a run changed, each with its two values as text."""
    return {
        name: [_as_text(value), _as_text(after[name])]
        for name, value in before.items()
        if name in after and after[name] != value
    }


@contextlib.contextmanager
def restored(model: Any) -> Iterator[None]:
    """Restore a model's weights and settings behind what trains it."""
    before, config = _state(model), settings(model)
    try:
        yield
    finally:
        put_back(model, config)
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.copy_(before[name])


def _run(learner: Learner, rows: Rows, plan: Plan, where: Places, stop: Stop | None) -> Run:
    rows = rows.in_dtype(learner.promoted or learner.dtype)
    watch = Watch(learner, rows)
    built = _train(watch, plan, where, stop)
    learner.model.zero_grad(set_to_none=True)
    facts = watch.facts()
    behind = weights(learner, where)
    # each micro-batch contributes a part of the step's loss
    starts = range(0, len(watch.losses), plan.accumulated)
    losses = [sum(watch.losses[start : start + plan.accumulated]) for start in starts]
    numbers = {"steps": [len(losses)], "loss": losses, "norms": logged(watch, "grad_norm")}
    tensors = {name: torch.tensor(of, dtype=torch.float64) for name, of in numbers.items()}
    return Run({**facts, **built, "weights": list(behind)}, {**tensors, **behind}, stop)


def _train(
    watch: Watch, plan: Plan, where: Places, stop: Stop | None, *, resumes: bool = False
) -> Facts:
    """Train as a plan says, and return what Trainer built; its optimizer ends with this call.

    ``stop``: where it writes a checkpoint, or ``resumes`` from that of an earlier run.
    """
    module = importlib.import_module("transformers.trainer")
    with tempfile.TemporaryDirectory() as folder, watch.model_watched():
        arguments = made_arguments(
            stop.folder if stop is not None else folder,
            optim=OPTIMIZER,
            per_device_train_batch_size=plan.batch,
            gradient_accumulation_steps=plan.accumulated,
            num_train_epochs=1,
            label_smoothing_factor=plan.smoothing,
            logging_strategy="steps",
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = watched(module.Trainer, watch, stop)(
            model=watch.learner.model, args=arguments, train_dataset=watch.rows
        )
        trainer.remove_callback(module.PrinterCallback)
        # a callback that held Trainer would keep the moments until a garbage collection
        trainer.add_callback(callback(watch, weakref.proxy(trainer)))
        if stop is not None:
            trainer.add_callback(
                at_stop(stop, lambda: weights(watch.learner, where), resumes=resumes)
            )
        checkpoint = stop.checkpoint if stop is not None and resumes else None
        trainer.train(resume_from_checkpoint=checkpoint)
        return _built(trainer, where)


def _built(trainer: Any, where: Places) -> Facts:
    """Return the classes that Trainer chose, and their arguments."""
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    decayed = {
        cut.tensor
        for group in _decaying(optimizer.param_groups)
        for parameter in group["params"]
        for cut in where.cuts[names[id(parameter)]]
    }
    return {
        "optimizer": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
        "optimizer_arguments": {
            name.removeprefix("initial_"): _as_text(value)
            for name, value in optimizer.param_groups[0].items()
            if name not in ("params", "lr")
        },
        "decayed": sorted(decayed),
        "order": [
            [_held(where.cuts[names[id(p)]], p) for p in group["params"]]
            for group in optimizer.param_groups
        ],
        "scheduler": _scheduler(getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler)),
    }


def _held(cuts: list[Cut], parameter: torch.nn.Parameter) -> Facts:
    """Return what a parameter holds of the checkpoint, and its shape, which is that of its moments."""
    name = " + ".join(f"{cut.tensor}{cut.part}" for cut in cuts)
    return {"name": name, "shape": list(parameter.shape)}


def _decaying(groups: list[Facts]) -> list[Facts]:
    """Return the groups to which a weight decay applies.

    The default is none for all; Trainer then still puts those that it would spare into the last.
    """
    return [group for group in groups if group.get("weight_decay")] or groups[:1]


def _scheduler(scheduler: Any) -> str:
    functions = [_name_of(getattr(f, "func", f)) for f in getattr(scheduler, "lr_lambdas", ())]
    return " ".join([type(scheduler).__qualname__, *sorted(set(functions))])


def _name_of(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))

"""Whether a model ends a training by transformers' Trainer as its best checkpoint: ``load_best_model_at_end=True``.

No evaluation is computed: it gives a metric that is the best behind one step, on every machine.
"""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

from samebits_probe.model.tensor import same_tensors
from samebits_probe.process import progress
from samebits_probe.process.failure import raised
from samebits_probe.questions.trainer.trainer import (
    OPTIMIZER,
    Rows,
    is_small,
    made_arguments,
    restored,
)
from samebits_probe.questions.trainer.watch import Stop, Watch, watched, weights
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.origin import Places
from samebits_probe.questions.training.way import Results

Facts = dict[str, Any]
STRATEGIES = ("steps", "best")
"""Values of ``save_strategy`` with which the best checkpoint can be loaded; epochs are saved as steps are."""
METRICS = {1: 0.2, 2: 0.9, 3: 0.5, 4: 0.1}
"""Step -> the metric of its evaluation; a larger one is better."""
_METRIC = "given"


def best_at_end(learner: Learner, rows: Rows, where: Places) -> Facts:
    """Return how a training ends by strategy; {} for a model whose checkpoints are not soon written."""
    if not is_small(learner):
        return {}
    progress.begin("Trainer, the best checkpoint")
    rows = rows.in_dtype(learner.dtype)
    return {strategy: _ended(learner, rows, where, strategy) for strategy in STRATEGIES}


def _ended(learner: Learner, rows: Rows, where: Places, strategy: str) -> Facts:
    """Return the step with the best metric, and the steps whose weights the model ends with."""
    at: dict[int, Results] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, restored(learner.model):
            _train(Watch(learner, rows), where, Stop(folder), strategy, at)
            behind = weights(learner, where)
    except Exception as error:  # noqa: BLE001  a refusal is a fact
        return {"refused": raised(error)}
    return {
        "best": max(METRICS, key=METRICS.__getitem__),
        "steps": [step for step, held in at.items() if same_tensors(held, behind)],
    }


def _train(watch: Watch, where: Places, stop: Stop, strategy: str, at: dict[int, Results]) -> None:
    """Train row by row and fill ``at`` with the weights behind each step.

    Raises:
        Exception: what Trainer raised, in a save too.

    """
    module = importlib.import_module("transformers.trainer")

    class WithMetric(watched(module.Trainer, watch, stop)):  # type: ignore[misc]
        def evaluate(self, *_args: Any, **_kwargs: Any) -> dict[str, float]:
            step = self.state.global_step
            at[step] = weights(watch.learner, where)
            return {f"eval_{_METRIC}": METRICS[step]}

    every = {"eval_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    arguments = made_arguments(
        stop.folder,
        optim=OPTIMIZER,
        per_device_train_batch_size=1,
        num_train_epochs=1,
        save_strategy=strategy,
        load_best_model_at_end=True,
        metric_for_best_model=_METRIC,
        greater_is_better=True,
        disable_tqdm=True,
        **every,
    )
    trainer = WithMetric(
        model=watch.learner.model,
        args=arguments,
        train_dataset=watch.rows,
        eval_dataset=watch.rows,
    )
    trainer.remove_callback(module.PrinterCallback)
    trainer.train()
    if stop.refused is not None:
        raise stop.refused

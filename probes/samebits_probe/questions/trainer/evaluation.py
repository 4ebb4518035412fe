"""What transformers' Trainer makes of rows without training: what the model receives, loss and predictions."""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

from samebits_probe.process import progress
from samebits_probe.process.failure import raised
from samebits_probe.questions.trainer.trainer import Rows, made_arguments
from samebits_probe.questions.trainer.watch import Watch, put_back, settings, watched
from samebits_probe.questions.training.learner import Learner, as_json

Facts = dict[str, Any]
BATCH = 3
"""Rows of a batch: of four rows the last batch is smaller, and a mean of means is no mean of rows."""


def evaluated(learner: Learner, rows: Rows) -> Facts:
    """Return what ``predict`` gives for the rows, or the exception; the model then trains as before."""
    progress.begin("Trainer, evaluation")
    rows = rows.in_dtype(learner.promoted or learner.dtype)
    watch, config = Watch(learner, rows), settings(learner.model)
    try:
        with watch.model_watched():
            answer = _predicted(learner, rows, watch)
    except Exception as error:  # noqa: BLE001  a Trainer that refuses an evaluation is a fact
        return {"refused": raised(error)}
    finally:
        put_back(learner.model, config)
        learner.model.train()
    loss = answer.metrics.get("test_loss")
    return {
        "received": watch.received,
        "loss": None if loss is None else as_json(float(loss)),
        "predictions": _shapes(answer.predictions),
        "labels": _shapes(answer.label_ids),
    }


def _predicted(learner: Learner, rows: Rows, watch: Watch) -> Any:
    module = importlib.import_module("transformers.trainer")
    with tempfile.TemporaryDirectory() as folder:
        arguments = made_arguments(folder, per_device_eval_batch_size=BATCH, disable_tqdm=True)
        trainer = watched(module.Trainer, watch)(model=learner.model, args=arguments)
        trainer.remove_callback(module.PrinterCallback)
        return trainer.predict(rows)


def _shapes(value: Any) -> list[str]:
    """Return the shape of each array of what may be one, several, or several inside of others."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [shape for entry in value for shape in _shapes(entry)]
    return [str([*value.shape]) if hasattr(value, "shape") else type(value).__name__]

"""A batch of inputs in a pipeline: whether each gets what it gets by itself.

What is compared is the first forward, in which the batch is padded: its logits of the next token. Where they
differ, both ways run again with the model in float64, which shows what rounds. A pipeline decides on which
side a shorter input is padded, so that side is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from samebits_probe.model import load, precision
from samebits_probe.model.distance import distance
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.pipelines import tasks, values
from samebits_probe.questions.pipelines.tasks import Call

Facts = dict[str, Any]
MAX_BYTES = 64 << 20
"""Bytes of parameters up to which a model is copied in float64."""
_BATCH_SIZE, _MASK = "batch_size", "attention_mask"


class _Answered:
    """What a pipeline answers, with the mask and the logits of the first forward."""

    def __init__(self, model: Any, call: Callable[[], Any]) -> None:
        self.mask: torch.Tensor | None = None
        self.logits: torch.Tensor | None = None
        self._has_run = False
        with model.register_forward_hook(self._note, with_kwargs=True):
            self.answer = call()

    def _note(self, _module: Any, _args: Any, kwargs: Facts, output: Any) -> None:
        if self._has_run:
            return
        self._has_run = True
        mask: Any = kwargs.get(_MASK)
        self.mask = mask.clone() if torch.is_tensor(mask) and mask.ndim == 2 else None
        logits = getattr(output, "logits", None)
        self.logits = None if logits is None else logits[:, -1].detach().clone()

    @property
    def padding(self) -> str:
        """The side on which rows are padded; '' if no mask shows one."""
        if self.mask is None:
            return ""
        hidden = self.mask == 0
        return "right" if bool(hidden[:, -1].any()) else "left" if bool(hidden[:, 0].any()) else ""


def one_by_one(pipe: Any, call: Call) -> Facts:
    """Return how far the inputs of a batch that answers are from what they get one by one."""
    try:
        batch, alone = _together(pipe, call), _alone(pipe, call)
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return {"own": {"raised": in_one_line(error)}}
    facts = {
        "own": {"fields": values.fields([each.answer for each in alone])},
        "padding": batch.padding,
        "distance": _distance(batch, alone),
    }
    return facts | {"in_float64": _in_float64(pipe, call)} if facts["distance"] else facts


def _together(pipe: Any, call: Call) -> _Answered:
    arguments = tasks.arguments_of(call, pipe.model)
    return _Answered(pipe.model, lambda: pipe(call.made(pipe), **arguments))


def _alone(pipe: Any, call: Call) -> list[_Answered]:
    arguments = dict(tasks.arguments_of(call, pipe.model))
    arguments.pop(_BATCH_SIZE)
    ways = [partial(pipe, each, **arguments) for each in call.made(pipe)]
    return [_Answered(pipe.model, way) for way in ways]


def _distance(batch: _Answered, alone: list[_Answered]) -> float | None:
    """Return the largest difference of the logits; None if a forward gives none."""
    rows = [each.logits for each in alone if each.logits is not None]
    if batch.logits is None or len(rows) < len(alone):
        return None
    return float(distance(batch.logits, torch.cat(rows))["max_abs"])


def _in_float64(pipe: Any, call: Call) -> float | None:
    if load.n_bytes(pipe.model) > MAX_BYTES:
        return None
    try:
        with _promoted(pipe):
            return _distance(_together(pipe, call), _alone(pipe, call))
    except Exception:  # noqa: BLE001  an operation that refuses float64 decides nothing
        return None


@contextmanager
def _promoted(pipe: Any) -> Iterator[None]:
    claimed, twin = precision.claimed_of(pipe.model.dtype), precision.promoted_copy(pipe.model)
    with mock.patch.object(pipe, "model", twin), precision.promotion(claimed), torch.no_grad():
        yield

"""Loads that place a model by accelerate, which only this job brings: what the model then holds, computes and saves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from samebits_probe.model import load
from samebits_probe.model.tensor import same_tensors
from samebits_probe.process import progress
from samebits_probe.questions.edits.others import OFFLOADED, PLACES, offloaded, placed
from samebits_probe.questions.edits.subject import Done, Subject, Tensors, state

Facts = dict[str, Any]


def places(model: Any, source: load.Source, kwargs: Facts) -> dict[str, Facts]:
    """Return call -> what comes of it, as of an edit; {} where two plain loads, or two forwards, are not alike."""
    progress.begin("loads by accelerate")
    if torch.cuda.is_available():
        return {}  # a GPU rounds otherwise
    try:
        plain, again = (
            load.from_pretrained(type(model), source, 0, "plain")[0].eval() for _ in range(2)
        )
        outputs = [Subject(each, source, kwargs, Path()).forward() for each in (plain, again)]
    except Exception:  # noqa: BLE001  other questions have it
        return {}
    if not (same_tensors(state(plain), state(again)) and same_tensors(*outputs)):
        return {}
    subject = Subject(plain, source, kwargs, Path())
    asks: dict[str, Callable[..., None]] = {
        call: partial(placed, arguments=arguments) for call, arguments in PLACES.items()
    }
    asks[OFFLOADED] = offloaded
    return {call: _asked(subject, ask, outputs[0]) for call, ask in asks.items()}


def _asked(subject: Subject, ask: Callable[..., None], plain: Tensors) -> Facts:
    done = Done()
    with tempfile.TemporaryDirectory() as folder, done.leaving_out():
        ask(subject._replace(folder=Path(folder)), plain=plain, done=done)
    return done.content()

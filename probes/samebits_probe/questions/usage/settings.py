"""Whether a setting of the config does what the argument of forward with its name does."""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from unittest import mock

import torch

from samebits_probe.model import outputs
from samebits_probe.questions.usage.methods import asked
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_wire.arguments import HEEDED

Facts = dict[str, Any]
_SETTINGS = {"output_hidden_states": True, "return_dict": False}
_NUMBER = re.compile(r"\[\d+\].*")
_TUPLE = "tuple"
_MAX_NAMES = 3


def settings(subject: Subject) -> Facts:
    """Return setting -> what came of a forward with it, of the first prompt or of a text; {} where there is neither."""
    if not (fed := subject.fed()):
        return {}
    return {
        f"model.config.{name} = {value}": asked(partial(_set, subject.model, fed, name, value))
        for name, value in _SETTINGS.items()
    }


def _set(model: Any, fed: Facts, name: str, value: bool) -> str:
    """Return whether a forward with the setting returns what one with the argument does, by the names of outputs."""
    try:
        plain, by_argument = _returned(model, fed), _returned(model, {**fed, name: value})
    except Exception as error:
        raise NoMeaning(f"a forward without it raises {error_text(error)}") from error
    if plain == by_argument:
        raise NoMeaning("the argument does not change what forward returns")
    with mock.patch.object(model.config, name, value):
        by_config = _returned(model, fed)
    lost = sorted(by_argument - by_config)
    return f"no {', no '.join(lost[:_MAX_NAMES])}" if lost else HEEDED


def _returned(model: Any, fed: Facts) -> set[str]:
    """Return the names of a forward's outputs; those in a tuple have none."""
    with torch.no_grad():
        output = model(**fed)
    if isinstance(output, tuple):
        return {_TUPLE}
    return {_NUMBER.sub("", name) for name in outputs.tensors(output)}

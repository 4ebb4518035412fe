"""The methods, properties and parts by which users reach into a model of the library."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from transformers import GenerationMixin, PreTrainedModel

from samebits_probe.questions.usage.subject import NoMeaning, Subject

_MODELS = "transformers.models."


def names(subject: Subject) -> dict[str, Any]:
    """Return the names that the model's own classes give it, those that all models have, and names of its inner models."""
    model = subject.model
    own = set(_own(model))
    if not own:
        raise NoMeaning(f"{type(model).__name__} has no name of its own")
    inner = [(path, module) for path, module in model.named_modules() if path and _is_model(module)]
    within = {name: path for path, module in reversed(inner) for name in _own(module)}
    return {
        "class_name": type(model).__name__,
        "own": sorted(own),
        "shared": sorted(filter(_is_public, dir(type(model)))),
        "within": {name: path for name, path in sorted(within.items()) if name not in own},
    }


def _own(model: Any) -> Iterator[str]:
    """Yield the parts of a model, and what its classes define beyond what the library's bases have."""
    yield from (name for name, _ in model.named_children() if _is_public(name))
    shared = {*dir(PreTrainedModel), *dir(GenerationMixin)}
    for each in type(model).__mro__:
        if each.__module__.startswith(_MODELS):
            defined = (name for name, value in vars(each).items() if _is_defined_in(each, value))
            yield from (name for name in defined if _is_public(name) and name not in shared)


def _is_defined_in(owner: type, value: Any) -> bool:
    """Tell methods and properties from functions that a class takes from its module."""
    function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
    return inspect.isroutine(function) and function.__qualname__.startswith(f"{owner.__name__}.")


def _is_model(module: Any) -> bool:
    return isinstance(module, PreTrainedModel)


def _is_public(name: str) -> bool:
    return not name.startswith("_")

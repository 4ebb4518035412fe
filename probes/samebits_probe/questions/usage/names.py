"""The methods, properties and parts by which users reach into a model of the library, and the fields into its config."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel

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


def config_names(subject: Subject) -> dict[str, Any]:
    """Return the fields that the config answers, its own and those of its parts, and where those are that it does not."""
    config = subject.model.config
    inner = [(path, name) for path, part in _parts(config) for name in vars(part)]
    shared = {*filter(_is_public, dir(PretrainedConfig()))}
    within = {name: path for path, name in reversed(inner) if not hasattr(config, name)}
    answered = {*vars(config), *(name for _, name in inner)} - {*within}
    return {
        "class_name": type(config).__name__,
        "own": sorted(filter(_is_public, answered - shared)),
        "shared": sorted(shared),
        "within": {
            n: path for n, path in sorted(within.items()) if _is_public(n) and n not in shared
        },
    }


def _parts(config: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each config within another one, and it."""
    for name, part in vars(config).items():
        if isinstance(part, PretrainedConfig):
            yield f"{before}{name}", part
            yield from _parts(part, f"{before}{name}.")


def _own(model: Any) -> Iterator[str]:
    """Yield the parts of a model, and what its classes define beyond what the library's bases have."""
    yield from (name for name, _ in model.named_children() if _is_public(name))
    shared = {*dir(PreTrainedModel), *dir(GenerationMixin)}
    for each in type(model).__mro__:
        if each.__module__.startswith(_MODELS):
            defined = (name for name, value in vars(each).items() if _is_defined_in(each, value))
            public = (name for name in defined if _is_public(name) and name not in shared)
            yield from (name for name in public if _answers(model, each, name))


def _answers(model: Any, owner: type, name: str) -> bool:
    """Return False for a property that only refuses, as Ovis2's ``multi_modal_projector`` of 4.57 does."""
    if not isinstance(vars(owner)[name], property):
        return True
    with suppress(Exception):  # another exception is the property's own
        return hasattr(model, name)
    return True


def _is_defined_in(owner: type, value: Any) -> bool:
    """Tell methods and properties from functions that a class takes from its module."""
    function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
    return inspect.isroutine(function) and function.__qualname__.startswith(f"{owner.__name__}.")


def _is_model(module: Any) -> bool:
    return isinstance(module, PreTrainedModel)


def _is_public(name: str) -> bool:
    return not name.startswith("_")

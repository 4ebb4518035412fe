"""Classes that compute nothing by themselves: what they hold, or generate with, are parts with a forward each."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch
import transformers

_MAX_NAMED = 3


def has_no_forward(model_class: Any) -> bool:
    """Return True for a class such as Bark's or Qwen2.5-Omni's, which generates with its parts alone."""
    return model_class.forward is torch.nn.Module.forward


def why(model_class: Any) -> str:
    """Return that a class has no forward, and how to name its parts that have one."""
    text = f"{model_class.__name__} has no forward"
    if not (names_of_parts := parts(model_class)):
        return text
    names = ", ".join(f"transformers:{name}" for name in names_of_parts[:_MAX_NAMED])
    return f"{text}. Name a class of its parts (--class, or class: in matrix.yaml): {names}"


def parts(model_class: Any) -> list[str]:
    """Return a class for each part of the config that transformers exports with a forward: one that generates, if any."""
    config_class = getattr(model_class, "config_class", None)
    of_parts = getattr(config_class, "sub_configs", None)
    exported: list[Any] = [
        each
        for each in vars(sys.modules[model_class.__module__]).values()
        if inspect.isclass(each)
        and issubclass(each, transformers.PreTrainedModel)
        and not has_no_forward(each)
        and getattr(transformers, each.__name__, None) is each
    ]
    names = []
    for part in of_parts.values() if isinstance(of_parts, dict) else ():
        own = [each for each in exported if getattr(each, "config_class", None) is part]
        names += [each.__name__ for each in sorted(own, key=_generates, reverse=True)[:1]]
    return names


def _generates(model_class: Any) -> bool:
    return issubclass(model_class, transformers.GenerationMixin)

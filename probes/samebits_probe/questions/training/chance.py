"""What makes a training forward draw numbers: which settings, and how to switch them.

A step is compared without chance: no release promises which numbers a seed gives.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

SEED = 0
_CHANCE = re.compile(r"drop(?!ped)|jitter|mask_(time|feature)_prob|noise_std")
"""Attributes of modules and fields of configs that make a training forward draw numbers."""
_MAX_CONFIG_DEPTH = 4
_CONFIG = "config"
_SPEC_AUGMENT = "apply_spec_augment"


class Setting(NamedTuple):
    """One probability, or switch, that is not zero."""

    owner: tuple[str, ...]
    """``("module", "encoder.0")``, or ``("config", "text_config")``."""
    name: str
    value: float | bool


def chance_of(model: Any) -> tuple[Setting, ...]:
    """Return what draws numbers in training: dropout, jitter, masks over time."""
    modules = [
        Setting(("module", name), field, value)
        for name, module in model.named_modules()
        for field, value in _fields(module)
    ]
    return (*modules, *_of_config(model.config, (_CONFIG,), _MAX_CONFIG_DEPTH))


def switch_off(model: Any, settings: tuple[Setting, ...]) -> None:
    """Set every one of ``settings`` to zero."""
    for setting in settings:
        setattr(_owner(model, setting), setting.name, type(setting.value)(0))


@contextlib.contextmanager
def switched_on(model: Any, settings: tuple[Setting, ...]) -> Iterator[None]:
    """Give the settings their values for a while; buffers are as before behind it."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        for setting in settings:
            setattr(_owner(model, setting), setting.name, setting.value)
        yield
    finally:
        switch_off(model, settings)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _fields(owner: Any) -> Iterator[tuple[str, float | bool]]:
    if isinstance(owner, torch.nn.modules.dropout._DropoutNd) and owner.p:
        yield "p", owner.p
    for name, value in list(vars(owner).items()):
        if isinstance(value, float) and value and _CHANCE.search(name):
            yield name, value


def _of_config(config: Any, owner: tuple[str, ...], depth: int) -> Iterator[Setting]:
    yield from (Setting(owner, name, value) for name, value in _fields(config))
    if getattr(config, _SPEC_AUGMENT, False):
        yield Setting(owner, _SPEC_AUGMENT, value=True)
    for name, part in list(vars(config).items()):
        if depth and hasattr(part, "to_dict") and hasattr(part, "__dict__"):
            yield from _of_config(part, (*owner, name), depth - 1)


def _owner(model: Any, setting: Setting) -> Any:
    kind, *path = setting.owner
    if kind == _CONFIG:
        owner = model.config
        for name in path:
            owner = getattr(owner, name)
        return owner
    return model.get_submodule(path[0])

"""What makes a training forward draw numbers: which settings, and how to switch them.

A step is compared without chance: no release promises which numbers a seed gives. One more batch has dropout
as a factor, which shows where it acts and how strongly.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.nn import functional

from samebits_probe.model.leftover import seed
from samebits_probe.model.tensor import same_bytes

SEED = 0
_CHANCE = re.compile(r"drop(?!ped)|jitter|mask_(time|feature)_prob|noise_std")
"""Attributes of modules and fields of configs that make a training forward draw numbers."""
_DROPOUT = re.compile(r"dropout|pdrop|(attn|proj)_drop")
"""Those of them that torch's own dropout reads; a layer or a path that is dropped as a whole draws by itself."""
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


def dropouts(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """Return the settings that are probabilities of a dropout."""
    return tuple(s for s in settings if s.name == "p" or _DROPOUT.search(s.name))


@contextlib.contextmanager
def as_factors(model: Any, settings: tuple[Setting, ...]) -> Iterator[None]:
    """Switch dropout on for a while, as a factor that follows from its probability.

    Whatever a release draws, and of which shape, the same dropout at the same place multiplies by the same number.
    """
    attention = functional.scaled_dot_product_attention

    def dropped(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001
        return input * (1.0 + p) if training else input

    def attended(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        *more: Any,
        **named: Any,
    ) -> Any:
        output = attention(query, key, value, attn_mask, 0.0, *more, **named)
        return output * (1.0 + dropout_p) if dropout_p else output

    factors: dict[str, Any] = {"dropout": dropped, "scaled_dot_product_attention": attended}
    with mock.patch.multiple(functional, **factors), switched_on(model, settings):
        yield


def has_drawn() -> bool:
    """Return True if something was drawn since the seed of a forward."""
    state = torch.get_rng_state()
    seed(SEED)
    return not same_bytes(state, torch.get_rng_state())


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

"""What makes a training forward draw numbers: which settings, how to switch them, what is drawn.

A step is compared without chance. With it, the same seed gives the same numbers only as long as a
release draws them in the same order and shapes. The draws themselves are recorded, so that a draw
that moved is told from rounding of what it is applied to.
"""

from __future__ import annotations

import contextlib
import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samebits_probe.model.tensor import tensor_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

Facts = dict[str, Any]
MAX_DRAWS = 64
"""Draws of a forward that are recorded one by one; the number of all is recorded, too."""
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
    found = [
        Setting(("module", name), field, value)
        for name, module in model.named_modules()
        for field, value in _fields(module)
    ]
    return (*found, *_of_config(model.config, (_CONFIG,), _MAX_CONFIG_DEPTH))


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


def seed() -> None:
    """Seed every generator that code of a model draws from."""
    random.seed(SEED)
    torch.manual_seed(SEED)
    with contextlib.suppress(ImportError):
        import numpy as np  # noqa: PLC0415  masks over time are drawn by numpy

        np.random.seed(SEED)


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


class Draws(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Records what code draws from torch's generator, with the module that is running."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.draws: list[Facts] = []
        self.n = 0
        self._running: list[str] = []
        self._hooks: list[Any] = []
        for name, module in model.named_modules():
            self._hooks += [
                module.register_forward_pre_hook(self._enter(name)),
                module.register_forward_hook(self._leave, always_call=True),
            ]

    def remove(self) -> None:
        """Leave the model without hooks."""
        for hook in self._hooks:
            hook.remove()

    def _enter(self, name: str) -> Any:
        def enter(_module: torch.nn.Module, _args: Any) -> None:
            self._running.append(name)

        return enter

    def _leave(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if self._running:
            self._running.pop()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run ``func`` and note what it drew."""
        result = func(*args, **kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._note(func, result)
        return result

    def _note(self, func: Any, result: Any) -> None:
        # native_dropout returns its output and its mask: the mask is what was drawn
        drawn = result[-1] if isinstance(result, (tuple, list)) else result
        if not isinstance(drawn, torch.Tensor) or not drawn.numel():
            return
        self.n += 1
        if len(self.draws) < MAX_DRAWS:
            fact = {
                "operation": func.overloadpacket.__name__,
                "module": self._running[-1] if self._running else "",
                "shape": list(drawn.shape),
                "hash": tensor_hash(drawn.detach().to(torch.float64).reshape(-1)),
            }
            self.draws.append(fact)


@contextlib.contextmanager
def recorded(model: torch.nn.Module) -> Iterator[Draws]:
    """Record the draws of a forward."""
    draws = Draws(model)
    try:
        with draws:
            yield draws
    finally:
        draws.remove()

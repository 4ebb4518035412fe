"""An adapter of low rank on one linear layer, as it is before its first step."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.training.way import NoMeaning, lesson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.training.learner import Learner
    from samebits_probe.training.way import Results, Setting, Way

RANK = 2
SCALE = 2.0
NAME = "adapter"
_CONV1D = "Conv1D"
"""transformers' linear layer with a transposed weight (pytorch_utils.py), as gpt2 has it."""


class Adapter:
    """``scale · B · A`` beside one layer; B is zero, as LoRA begins, so it changes no number."""

    def __init__(self, layer: torch.nn.Module) -> None:
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        self.turned = type(layer).__name__ == _CONV1D
        n_out, n_in = weight.shape[::-1] if self.turned else weight.shape
        numbers = torch.arange(RANK * n_in, dtype=torch.float64).reshape(RANK, n_in)
        self.a = torch.cos(numbers * 0.7).to(weight.dtype)
        self.b = torch.zeros(n_out, RANK, dtype=weight.dtype, requires_grad=True)

    def beside(self, _layer: torch.nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        """Add the adapter's output to the layer's."""
        return output + SCALE * (args[0] @ self.a.T) @ self.b.T

    def gradient_of(self, weight_gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of B that follows from the gradient of the layer's weight."""
        gradient = weight_gradient.T if self.turned else weight_gradient
        return SCALE * gradient @ self.a.T


def leaves_gradients(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step without an adapter, and one with it whose layer is frozen.

    All other gradients must be the same, and that of the adapter's B follows from the gradient of
    the weight it stands beside: a layer whose weight is used in another place than its forward
    does not learn through an adapter.

    Raises:
        NoMeaning: no linear layer of its own weight runs once in a forward.

    """
    name = _layer_of(learner, setting)
    weight = f"{name}.weight"
    plain = lesson(setting.main)

    def without(other: Learner) -> Results:
        results = plain(other)
        adapter = Adapter(other.model.get_submodule(name))
        expected = adapter.gradient_of(results.pop(weight))
        return {**results, NAME: expected}

    def way(other: Learner) -> Results:
        layer = other.model.get_submodule(name)
        adapter = Adapter(layer)
        with _beside(layer, adapter):
            loss = other.learn(setting.main.kwargs).loss.detach().reshape(1)
        results = {"loss": loss, **other.gradients()}
        return results if adapter.b.grad is None else {**results, NAME: adapter.b.grad}

    return without, way


@contextlib.contextmanager
def _beside(layer: torch.nn.Module, adapter: Adapter) -> Iterator[None]:
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    hook = layer.register_forward_hook(adapter.beside)
    before = weight.requires_grad
    weight.requires_grad_(False)
    try:
        yield
    finally:
        weight.requires_grad_(before)
        hook.remove()


def _layer_of(learner: Learner, setting: Setting) -> str:
    """Return the first linear layer that runs once, and whose weight nothing else holds."""
    layers = {name: m for name, m in learner.model.named_modules() if _is_linear(m)}
    calls: dict[str, int] = {}
    hooks = [m.register_forward_hook(_count(name, calls)) for name, m in layers.items()]
    try:
        with torch.no_grad():
            learner.forward(setting.main.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    tied = _tied(learner.model)
    learns = learner.lesson(setting.main)
    for name, n in calls.items():
        if n == 1 and f"{name}.weight" in learns and id(layers[name].weight) not in tied:
            return name
    msg = "no linear layer runs once in a forward with a weight of its own"
    raise NoMeaning(msg)


def _is_linear(module: torch.nn.Module) -> bool:
    return type(module) is torch.nn.Linear or type(module).__name__ == _CONV1D


def _count(name: str, calls: dict[str, int]) -> Any:
    def hook(_module: torch.nn.Module, args: Any, output: Any) -> None:
        if args and isinstance(output, torch.Tensor):
            calls[name] = calls.get(name, 0) + 1

    return hook


def _tied(model: torch.nn.Module) -> set[int]:
    """Return the ids of parameters that have more than one name."""
    ids = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    return {number for number in ids if ids.count(number) > 1}

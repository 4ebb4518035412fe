"""What comes out of every layer, in order of execution, whatever the release calls the layer.

``output_hidden_states`` is not used: what it collects, and whether the last entry is taken
before or after the final norm, changed between releases. A hook on the layer does not.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

LayerOutput = tuple[str, torch.Tensor]


def layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Return the model's layers: the elements of every ModuleList that no other one contains."""
    found: list[tuple[str, torch.nn.Module]] = []
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList) or name.startswith(inside):
            continue
        inside += (f"{name}.",)
        found += [(f"{name}.{index}", layer) for index, layer in enumerate(module)]
    return found


@contextmanager
def recorded(model: torch.nn.Module) -> Iterator[list[LayerOutput]]:
    """Record the input of the first layer and the output of each, copied before it can change."""
    outputs: list[LayerOutput] = []
    hooks = []
    for name, layer in layers(model):
        hooks.append(layer.register_forward_pre_hook(_input_hook(outputs), with_kwargs=True))
        hooks.append(layer.register_forward_hook(_output_hook(name, outputs)))
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def _input_hook(outputs: list[LayerOutput]) -> Any:
    def hook(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if outputs:
            return
        first = args[0] if args else kwargs.get("hidden_states")
        if isinstance(first, torch.Tensor):
            outputs.append(("embeddings", first.detach().clone()))

    return hook


def _output_hook(name: str, outputs: list[LayerOutput]) -> Any:
    def hook(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is not None:
            outputs.append((name, tensor.detach().clone()))

    return hook


def first_tensor(output: Any) -> torch.Tensor | None:
    """Return the tensor that a layer hands on: the output, or the first of a tuple or mapping.

    A decoder layer returned a tuple through 4.53 and a tensor from 4.57 on.
    """
    if isinstance(output, torch.Tensor):
        return output
    values = output.values() if hasattr(output, "values") else output
    if not isinstance(values, (tuple, list)) and not hasattr(output, "values"):
        return None
    return next((value for value in values if isinstance(value, torch.Tensor)), None)


def logits_of(output: Any) -> torch.Tensor | None:
    """Return what a model gives out: its logits, or the first tensor of a model without a head."""
    logits = getattr(output, "logits", None)
    return logits if logits is not None else first_tensor(output)

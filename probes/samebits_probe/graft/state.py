"""State of a loaded model that can be transplanted: tensors, plain attributes, places in memory.

It is read right before the observed forward, so it includes what an earlier prompt left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from samebits_probe.graft.places import Unfit
from samebits_probe.model.alignment import BOUNDARY, behind

Fact = dict[str, Any]

_PLAIN_TYPES = (bool, int, float, str, type(None))
_TORCH_ATTRIBUTES = frozenset(vars(torch.nn.Module()))


def survey(model: Any, keep: Callable[[torch.Tensor], Fact], weights: Iterable[str]) -> Fact:
    """Return the model's state, each tensor as the fact from ``keep``; only the named weights."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    weights_by_name = parameters | {
        k: v for k, v in model.state_dict(keep_vars=True).items() if isinstance(v, torch.Tensor)
    }
    return {
        "weights": {
            name: keep(weights_by_name[name]) for name in weights if name in weights_by_name
        },
        "memory": {
            name: [behind(tensor), list(tensor.shape), list(tensor.stride())]
            for name, tensor in model.named_parameters()
            if not tensor.is_meta
        },
        "buffers": {name: keep(t) for name, t in model.named_buffers() if not t.is_meta},
        "attributes": dict(_attributes(model, keep)),
        "attention": implementation(model, "_attn_implementation"),
        "experts": implementation(model, "_experts_implementation"),
    }


def implementation(model: Any, name: str) -> str | None:
    """Return the implementation that a config chose; None if it has no such choice."""
    value = getattr(model.config, name, None)
    return value if isinstance(value, str) else None


def _attributes(model: Any, keep: Callable[[torch.Tensor], Fact]) -> Iterator[tuple[str, Any]]:
    """Yield ``module.name`` and value of attributes that are not registered tensors."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in _TORCH_ATTRIBUTES or name == "name_or_path" or name.startswith("_"):
                continue
            full = f"{path}.{name}" if path else name
            if isinstance(value, torch.Tensor):
                yield full, {"tensor": keep(value)}
            elif isinstance(value, _PLAIN_TYPES):
                yield full, {"plain": value, "type": type(value).__name__}


def put_tensor(model: Any, name: str, tensor: torch.Tensor) -> None:
    """Replace the numbers of a parameter, a buffer or an attribute that holds a tensor.

    Numbers of the same shape and dtype overwrite the old ones: another place in memory is a
    separate suspect.
    """
    path, _, leaf = name.rpartition(".")
    try:
        module = model.get_submodule(path)
        current = getattr(module, leaf)
    except AttributeError as error:
        raise Unfit(f"there is no {name}") from error
    with torch.no_grad():
        if current.shape == tensor.shape and current.dtype == tensor.dtype:
            current.copy_(tensor)
        elif isinstance(current, torch.nn.Parameter):
            current.data = tensor
        else:
            setattr(module, leaf, tensor)


def put_attribute(model: Any, name: str, value: Any) -> None:
    """Replace a plain attribute of a module."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, value)


def put_scaling(model: Any, buffer: str, scaling: float) -> None:
    """Replace the factor on cos and sin in the rotary module that holds ``buffer``.

    5.x has one for each layer type, named like the frequencies.
    """
    path, _, leaf = buffer.rpartition(".")
    module = model.get_submodule(path)
    layer_type_name = f"{leaf.removesuffix('inv_freq')}attention_scaling"
    setattr(
        module,
        layer_type_name if hasattr(module, layer_type_name) else "attention_scaling",
        scaling,
    )


def put_memory(model: Any, places: dict[str, Any]) -> None:
    """Move parameters to the offsets from a 64-byte boundary in ``places``."""
    for name, parameter in model.named_parameters():
        place = places.get(name)
        if place is None or place[1] != list(parameter.shape):
            continue
        if place[0] == behind(parameter) or not parameter.is_contiguous():
            continue
        parameter.data = _copy_at_offset(parameter.data, place[0])


def _copy_at_offset(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    size = tensor.element_size()
    buffer = torch.empty(tensor.numel() + 2 * BOUNDARY // size, dtype=tensor.dtype)
    skip = (offset - behind(buffer)) % BOUNDARY // size
    return buffer[skip : skip + tensor.numel()].view(tensor.shape).copy_(tensor)

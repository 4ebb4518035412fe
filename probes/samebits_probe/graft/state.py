"""What a loaded model holds that another one could be given: tensors, plain attributes, places in memory.

Taken right before the forward that is looked at, so that what an earlier prompt left behind is
part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.graft.places import Unfit
from samebits_probe.model.places import BOUNDARY, behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Fact = dict[str, Any]

_PLAIN = (bool, int, float, str, type(None))
_OF_TORCH = frozenset(vars(torch.nn.Module()))


def survey(model: Any, keep: Callable[[torch.Tensor], Fact], weights: Iterable[str]) -> Fact:
    """Return what the model holds; values are kept as ``keep`` does, of weights only those named."""
    named = dict(model.named_parameters(remove_duplicate=False))
    persistent = model.state_dict(keep_vars=True)
    known = named | {k: v for k, v in persistent.items() if isinstance(v, torch.Tensor)}
    return {
        "weights": {name: keep(known[name]) for name in weights if name in known},
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
    """Return which implementation a config has resolved to; None where it knows no such choice."""
    value = getattr(model.config, name, None)
    return value if isinstance(value, str) else None


def _attributes(model: Any, keep: Callable[[torch.Tensor], Fact]) -> Iterator[tuple[str, Any]]:
    """Yield ``module.name`` and what a module keeps beside tensors that are registered."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in _OF_TORCH or name == "name_or_path" or name.startswith("_"):
                continue
            full = f"{path}.{name}" if path else name
            if isinstance(value, torch.Tensor):
                yield full, {"tensor": keep(value)}
            elif isinstance(value, _PLAIN):
                yield full, {"plain": value, "type": type(value).__name__}


def put_tensor(model: Any, name: str, tensor: torch.Tensor) -> None:
    """Give a parameter, a buffer or an attribute that holds a tensor other numbers.

    Numbers of the same shape and dtype are written where the old ones lie: another place in memory
    is a suspect of its own.

    Raises:
        Unfit: the model has no such tensor.

    """
    path, _, leaf = name.rpartition(".")
    try:
        module = model.get_submodule(path)
        held = getattr(module, leaf)
    except AttributeError as error:
        msg = f"there is no {name}"
        raise Unfit(msg) from error
    with torch.no_grad():
        if held.shape == tensor.shape and held.dtype == tensor.dtype:
            held.copy_(tensor)
        elif isinstance(held, torch.nn.Parameter):
            held.data = tensor
        else:
            setattr(module, leaf, tensor)


def put_attribute(model: Any, name: str, value: Any) -> None:
    """Give a module another plain attribute."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, value)


def put_scaling(model: Any, buffer: str, scaling: float) -> None:
    """Give the rotary module that holds ``buffer`` another factor on cos and sin.

    5.x has one for each layer type, named like the frequencies.
    """
    path, _, leaf = buffer.rpartition(".")
    module = model.get_submodule(path)
    own = f"{leaf.removesuffix('inv_freq')}attention_scaling"
    setattr(module, own if hasattr(module, own) else "attention_scaling", scaling)


def put_memory(model: Any, places: dict[str, Any]) -> None:
    """Lay parameters as far behind a 64-byte boundary as ``places`` says."""
    for name, parameter in model.named_parameters():
        wanted = places.get(name)
        if wanted is None or wanted[1] != list(parameter.shape):
            continue
        if wanted[0] == behind(parameter) or not parameter.is_contiguous():
            continue
        parameter.data = _laid(parameter.data, wanted[0])


def _laid(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    size = tensor.element_size()
    room = torch.empty(tensor.numel() + 2 * BOUNDARY // size, dtype=tensor.dtype)
    skip = (offset - behind(room)) % BOUNDARY // size
    return room[skip : skip + tensor.numel()].view(tensor.shape).copy_(tensor)

"""The experts of a model in another order, together with the router's numbers for them.

The number of an expert has no meaning: a router's row and the expert that it chooses are a pair. A model whose
pairs are turned round computes the same function, unless its code mixes pairs up, or runs other experts than the
chosen ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import torch

_EXPERT, _SHARED = "expert", "shared"
_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict)


class Block(NamedTuple):
    """The experts that a router chooses from, and what the router has for each of them."""

    lists: tuple[torch.nn.Module, ...]
    """Those that have one module for each expert."""
    tensors: tuple[tuple[torch.Tensor, int], ...]
    """Tensors with one slice for each expert, and the dimension of the slices."""


def blocks(model: torch.nn.Module) -> list[Block]:
    """Return the blocks of experts whose router is known."""
    modules = dict(model.named_modules())
    numbered = [
        (name.rpartition(".")[0], number, module)
        for name, module in modules.items()
        if _is_named_so(name, module) and (number := _number_of(module))
    ]
    candidates = (
        _block(modules[parent], number, [module for *_, module in group])
        for (parent, number), group in groupby(numbered, key=lambda each: each[:2])
    )
    return [block for block in candidates if block is not None]


@contextmanager
def turned_round(model: torch.nn.Module) -> Iterator[None]:
    """Give the experts of a model the numbers from the last to the first while the body runs."""
    turned = blocks(model)
    _turn_round(turned)
    try:
        yield
    finally:
        _turn_round(turned)


def _is_named_so(name: str, module: torch.nn.Module) -> bool:
    own = name.rpartition(".")[2]
    return _EXPERT in f"{own} {type(module).__name__}".lower() and _SHARED not in own


def _number_of(module: torch.nn.Module) -> int:
    """Return how many experts a module has; 0 if they are no list, and no slices of its tensors."""
    if isinstance(module, _LISTS):
        experts = _members(module).values()
        shapes = {tuple(p.shape for p in expert.parameters()) for expert in experts}
        return len(experts) if len(shapes) == 1 else 0
    sizes = {tensor.shape[0] for tensor in module.parameters() if tensor.ndim}
    return sizes.pop() if len(sizes) == 1 else 0


def _block(parent: torch.nn.Module, number: int, modules: list[torch.nn.Module]) -> Block | None:
    """Return the block of some modules; None without a router, a matrix with a row for each expert."""
    own = {id(tensor) for module in modules for tensor in module.parameters()}
    router = [
        (tensor, [*tensor.shape].index(number))
        for name, tensor in (*parent.named_parameters(), *parent.named_buffers())
        if [*tensor.shape].count(number) == 1 and _EXPERT not in name and id(tensor) not in own
    ]
    if not any(tensor.ndim == 2 and dim == 0 for tensor, dim in router):
        return None
    lists = tuple(module for module in modules if isinstance(module, _LISTS))
    slices = [(p, 0) for m in modules if m not in lists for p in m.parameters()]
    return Block(lists, (*slices, *router))


def _members(modules: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the modules of a list that have parameters, as a dropout may stand beside experts."""
    children = modules.named_children()
    return {name: child for name, child in children if next(child.parameters(), None) is not None}


def _turn_round(turned: list[Block]) -> None:
    for block in turned:
        for modules in block.lists:
            experts = _members(modules)
            modules._modules.update(zip(experts, [*experts.values()][::-1], strict=True))
        for tensor, dim in block.tensors:
            tensor.data.copy_(tensor.data.flip(dim))  # of .data, so that no version counts it

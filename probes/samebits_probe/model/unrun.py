"""Modules of a model that no prompt ran, so that nothing is known of them.

A module ran if its forward was called. Code may also read the parameters of a module without calling it, as a tied head or a
function of torch does. So where modules were not called, the prompts run once more, and every operation is asked which
parameters it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Calls:
    """Notes which modules with parameters are called, until :meth:`stop`.

    The hook is a global one: a hook on a module would keep torch's TransformerEncoderLayer from its fast path.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._owners = {id(module): name for name, module in _owners(model)}
        self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._note)

    def stop(self) -> None:
        """Note no more calls; a second time does nothing."""
        self._hook.remove()

    @property
    def uncalled(self) -> set[str]:
        """The names of the modules with parameters of their own that were not called."""
        return set(self._owners.values())

    def _note(self, module: torch.nn.Module, _args: Any) -> None:
        self._owners.pop(id(module), None)


def unread(
    model: torch.nn.Module, names: Iterable[str], prompts: Iterable[dict[str, Any]]
) -> set[str]:
    """Return those of the named modules of whose parameters no operation of the prompts' forwards reads one."""
    modules = {name: model.get_submodule(name) for name in names}
    owners = {
        id(parameter): name
        for name, module in modules.items()
        for parameter in module.parameters(recurse=False)
    }
    reads = _Reads(set(owners))
    for kwargs in prompts:
        with reads:
            model(**kwargs)
    return modules.keys() - {owners[key] for key in reads.seen}


class _Reads(TorchDispatchMode):  # type: ignore[misc]
    """Notes which of some tensors are arguments of operations."""

    def __init__(self, watched: set[int]) -> None:
        super().__init__()
        self.seen: set[int] = set()
        self._watched = watched

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        self.seen.update(id(leaf) for leaf in leaves if id(leaf) in self._watched)
        return func(*args, **(kwargs or {}))


def facts(model: torch.nn.Module, names: set[str]) -> list[dict[str, Any]]:
    """Return the modules that did not run, each part of one that did not run left out, in order."""
    owners = [name for name, _ in _owners(model)]
    listed: list[dict[str, Any]] = []
    for name, module in model.named_modules():
        if not name and len(names) == len(owners):
            continue  # then it is the prompts that did not run
        inner = [
            owner for owner in owners if not name or owner == name or owner.startswith(f"{name}.")
        ]
        is_part = any(name.startswith(f"{entry['name']}.") for entry in listed)
        if not inner or is_part or not names.issuperset(inner):
            continue
        numbers = sum(parameter.numel() for parameter in module.parameters())
        listed.append(
            {"name": name, "parameters": numbers, "one_of_several": _beside(model, name, names)}
        )
    return listed


def _beside(model: torch.nn.Module, name: str, unrun: set[str]) -> bool:
    """Return True if the module is one of a list, and another of its class in the list ran."""
    parent, _, last = name.rpartition(".")
    if not last.isdigit():
        return False
    kind = type(model.get_submodule(name))
    siblings = ((f"{parent}.{key}", m) for key, m in model.get_submodule(parent).named_children())
    return any(
        type(module) is kind
        and not unrun.issuperset(f"{sibling}.{n}".removesuffix(".") for n, _ in _owners(module))
        for sibling, module in siblings
    )


def _owners(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            yield name, module

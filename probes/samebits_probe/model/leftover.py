"""What a forward leaves behind: attributes and buffers of modules, and the random generators.

Most forwards leave nothing. A rotary embedding may keep frequencies that it scaled for a long
prompt, a custom layer may count its calls. Where that happens, a forward more or less can change
what the next one computes.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from samebits_probe.model.tensor import is_same, same_bytes

_MAX_COPIED = 1 << 20
"""Bytes of a tensor above which it is not copied; a change of it is seen, but cannot be undone."""
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype, torch.device)
_NO_STATE = (
    torch.nn.Module,
    torch.Tensor,
    type,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    ModuleType,
)
_OF_TORCH = frozenset(vars(torch.nn.Module())) - {"_buffers", "_parameters"}
"""Attributes that every module has: hooks and switches, which a forward does not set."""
MARK_OF_HOOKS = "_output_capturing_hooks_installed"
"""With it 5.x marks a model that has hooks. The hooks stay, so the mark does, too: a second set of hooks would give
each hidden state twice."""
_STAYS = _OF_TORCH | {MARK_OF_HOOKS}


class _Value(NamedTuple):
    """A value as it was: the object itself, and for a tensor a copy, or its version without one."""

    value: Any
    version: int | None = None
    copy: torch.Tensor | None = None


class Change(NamedTuple):
    """One value that is not as it was."""

    name: str
    """Such as ``model.rotary_emb.inv_freq`` or ``model.layers.0.lengths[1]``."""
    kind: str
    """``buffer``, ``parameter``, ``attribute`` or ``cache``."""
    place: int
    """Number of its holder."""
    key: Any


class _Holder(NamedTuple):
    """A container of values, how their names begin, and what they are."""

    values: dict[Any, Any] | list[Any]
    prefix: str
    kind: str


class Leftover:
    """A model's modules and the random generators as they are now, to be compared and restored.

    Held are attributes, those of the objects and containers in them, and the containers in these.
    Parameters and tensors above 1 MiB are not copied.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._held = list(_holders(model))
        self._holders = [
            (held.values, {key: _as_now(value) for key, value in _items(held.values)})
            for held in self._held
        ]
        self._generators = _generators()

    def has_changed(self) -> bool:
        """Return True if a forward since then has changed a value or drawn a random number."""
        return any(_changes(*pair) for pair in self._holders) or not _are_equal(
            self._generators, _generators()
        )

    def changes(self) -> list[Change]:
        """Return every value of a module that is new, gone or another one, buffers first."""
        changed = [
            Change(_value_name(self._held[place], key), self._held[place].kind, place, key)
            for place, (holder, values) in enumerate(self._holders)
            for key in _changes(holder, values)
        ]
        return sorted(changed, key=lambda change: _KINDS.index(change.kind))

    def undo(self, change: Change) -> None:
        """Give one value back as it was."""
        holder, values = self._holders[change.place]
        _put_back(holder, change.key, values.get(change.key))

    def restore(self) -> None:
        """Give the modules and the generators their former values back."""
        for holder, values in self._holders:
            for key in _changes(holder, values):
                _put_back(holder, key, values.get(key))
            if isinstance(holder, OrderedDict):  # which entry goes first may depend on it
                for key in values:
                    holder.move_to_end(key)
        random.setstate(self._generators.python)
        np.random.set_state(self._generators.numpy)
        torch.set_rng_state(self._generators.torch)


_KINDS = ("buffer", "parameter", "cache", "attribute")
_OF_MODULE = {"_buffers": "buffer", "_parameters": "parameter"}


def _holders(model: torch.nn.Module) -> Iterator[_Holder]:
    """Yield the attributes of every module, and every container and object among them, once."""
    yielded: set[int] = set()
    for path, module in model.named_modules():
        yield _Holder(vars(module), path, "attribute")
        for name, value in vars(module).items():
            inner = None if name in _OF_TORCH else _inner(value)
            if inner is None:
                continue
            held = _inner_holder(inner, value, path, name)
            for each in (held, *_containers_in(held)):
                if id(each.values) not in yielded:
                    yielded.add(id(each.values))
                    yield each


def _containers_in(held: _Holder) -> Iterator[_Holder]:
    """Yield the dicts and lists among the values of an attribute, such as the entries of a cache."""
    for key, value in _items(held.values):
        if isinstance(value, (dict, list)):
            yield _Holder(value, _value_name(held, key), held.kind)


def _inner_holder(inner: dict[Any, Any] | list[Any], value: Any, path: str, name: str) -> _Holder:
    if name in _OF_MODULE:
        return _Holder(inner, path, _OF_MODULE[name])
    kind = "cache" if "Cache" in type(value).__name__ else "attribute"
    return _Holder(inner, f"{path}.{name}" if path else name, kind)


def _value_name(held: _Holder, key: Any) -> str:
    if isinstance(key, int):
        return f"{held.prefix}[{key}]"
    return f"{held.prefix}.{key}" if held.prefix else str(key)


def _inner(value: Any) -> dict[Any, Any] | list[Any] | None:
    if isinstance(value, (dict, list)):
        return value
    if isinstance(value, (*_SIMPLE, *_NO_STATE)):
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else None


def _items(holder: dict[Any, Any] | list[Any]) -> list[tuple[Any, Any]]:
    if isinstance(holder, list):
        return list(enumerate(holder))
    return [(key, value) for key, value in holder.items() if key not in _STAYS]


def _as_now(value: Any) -> _Value:
    if not isinstance(value, torch.Tensor):
        return _Value(value)
    is_copied = (
        not isinstance(value, torch.nn.Parameter)
        and value.numel() * value.element_size() <= _MAX_COPIED
    )
    return _Value(value, _version(value), value.detach().clone() if is_copied else None)


def _version(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was written; None for one of inference mode, which has no count."""
    return None if tensor.is_inference() else tensor._version


def _changes(holder: dict[Any, Any] | list[Any], values: dict[Any, _Value]) -> list[Any]:
    """Return the keys of a holder whose values are new, gone or others."""
    items = dict(_items(holder))
    return [
        *(key for key, value in items.items() if key not in values or _differs(values[key], value)),
        *(key for key in values if key not in items),
    ]


def _differs(before: _Value, now: Any) -> bool:
    value = before.value
    if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
        if before.copy is not None:
            return not is_same(before.copy, now)
        return value is not now or before.version is None or before.version != _version(now)
    if value is now:
        return False
    is_simple = type(value) is type(now) and isinstance(value, _SIMPLE)
    return not is_simple or bool(value != now)


def _put_back(holder: dict[Any, Any] | list[Any], key: Any, before: _Value | None) -> None:
    copy = None if before is None else before.copy
    if before is not None and copy is not None and not is_same(copy, before.value):
        before.value.detach().copy_(copy)
    if isinstance(holder, dict):
        if before is None:
            del holder[key]
        else:
            holder[key] = before.value
    elif before is None:
        holder.pop()  # keys of a list are its positions, and the new ones are the last
    elif key < len(holder):
        holder[key] = before.value
    else:
        holder.append(before.value)


class _Generators(NamedTuple):
    python: Any
    numpy: Any
    torch: torch.Tensor


def seed(number: int) -> None:
    """Seed every generator that code of a model or of a user draws from."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def _generators() -> _Generators:
    return _Generators(random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state())


def _are_equal(first: _Generators, second: _Generators) -> bool:
    return (
        first.python == second.python
        and first.numpy["state"]["pos"] == second.numpy["state"]["pos"]
        and bytes(first.numpy["state"]["key"]) == bytes(second.numpy["state"]["key"])
        and same_bytes(first.torch, second.torch)
    )

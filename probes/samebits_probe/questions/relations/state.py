"""Snapshot of the state in a model's modules, restored after a forward.

recurrent_gemma kept its states in modules, a rope that scales with the length keeps its
frequencies, and rwkv's first forward divides its weights and records that it did. Only changed
values are restored.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch

from samebits_probe.model.leftover import MARK_OF_HOOKS

_NOT_KEPT = frozenset(vars(torch.nn.Module())) - {"training"} | {MARK_OF_HOOKS}
_PLAIN_TYPES = (bool, int, float, str, type(None))
_MISSING = object()
_Key = tuple[int, str, bool]


class _Entry(NamedTuple):
    value: Any
    mark: Any
    saved: Any


class Snapshot:
    """Buffers and attributes of all modules of a model at the time of the snapshot.

    With ``parameters`` their values are kept too, which doubles the memory. Without them a forward
    that writes to parameters cannot be undone. Then nothing else is undone either, as both belong
    together.
    """

    def __init__(self, model: torch.nn.Module, *, parameters: bool) -> None:
        self._modules = list(model.modules())
        self._parameters = [(p, _copy_of(p) if parameters else None) for p in model.parameters()]
        self._record()

    def _record(self) -> None:
        self._entries = {
            key: _Entry(v, _fingerprint(v), _copy_of(v)) for key, v in self._current().items()
        }
        self._versions = [p._version for p, _ in self._parameters]
        self._record_quick_checks()

    def _record_quick_checks(self) -> None:
        """Record cheap checks that nothing changed: most forwards leave no state."""
        owners = [owner for module in self._modules for owner in (vars(module), module._buffers)]
        self._sizes = [(owner, len(owner)) for owner in owners]
        self._values = [
            (self._owner(key), key[1], entry.value) for key, entry in self._entries.items()
        ]
        complex_entries = [
            e for e in self._entries.values() if not isinstance(e.value, _PLAIN_TYPES)
        ]
        self._containers_and_tensors = [
            (e.value, e.mark) for e in complex_entries if not isinstance(e.mark, int)
        ]

    def _unchanged(self) -> bool:
        return (
            all(p._version == n for (p, _), n in zip(self._parameters, self._versions, strict=True))
            and all(len(owner) == n for owner, n in self._sizes)
            and all(owner.get(key, _MISSING) is value for owner, key, value in self._values)
            and all(_fingerprint(value) == mark for value, mark in self._containers_and_tensors)
        )

    def _current(self) -> dict[_Key, Any]:
        values: dict[_Key, Any] = {}
        for index, module in enumerate(self._modules):
            for key, value in vars(module).items():
                if key not in _NOT_KEPT:
                    values[index, key, False] = value
            for key, value in module._buffers.items():
                values[index, key, True] = value
        return values

    def restore(self) -> None:
        """Restore everything that changed."""
        if self._unchanged():
            return
        if not self._restore_parameters():
            self._record()
            return
        current = self._current()
        for key in current.keys() - self._entries.keys():
            del self._owner(key)[key[1]]
        for key, entry in self._entries.items():
            if (
                key not in current
                or current[key] is not entry.value
                or _fingerprint(current[key]) != entry.mark
            ):
                self._put_back(key, entry)
        self._record_quick_checks()

    def _restore_parameters(self) -> bool:
        """Restore parameters that were written to; False if their values were not kept."""
        for index, (parameter, saved) in enumerate(self._parameters):
            if parameter._version == self._versions[index]:
                continue
            if saved is None:
                return False
            with torch.no_grad():
                parameter.copy_(saved)
            self._versions[index] = parameter._version
        return True

    def _put_back(self, key: _Key, entry: _Entry) -> None:
        value = entry.value
        if isinstance(value, torch.Tensor):
            if _fingerprint(value) != entry.mark:
                with torch.no_grad():
                    value.copy_(entry.saved)
        elif _is_container(value):
            value = copy.deepcopy(entry.saved)
        self._owner(key)[key[1]] = value
        self._entries[key] = entry._replace(value=value, mark=_fingerprint(value))

    def _owner(self, key: _Key) -> dict[str, Any]:
        module = self._modules[key[0]]
        owner: dict[str, Any] = module._buffers if key[2] else vars(module)
        return owner


def _fingerprint(value: Any) -> Any:
    """Return a fingerprint that is equal while a value is unchanged."""
    if isinstance(value, torch.Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, dict):
        return {key: _fingerprint(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fingerprint(item) for item in value]
    return value if isinstance(value, _PLAIN_TYPES) else id(value)


def _copy_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.deepcopy(value) if _is_container(value) else None


def _is_container(value: Any) -> bool:
    """Return True for a dict, list or tuple that holds only tensors and plain values."""
    if isinstance(value, dict):
        return all(map(_is_contained, value.values()))
    return isinstance(value, (list, tuple)) and all(map(_is_contained, value))


def _is_contained(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, *_PLAIN_TYPES)) or _is_container(value)

"""What do a model's modules hold, and how is it put back after a forward.

recurrent_gemma kept its states there, a rope that scales with the length keeps its frequencies,
and rwkv's first forward divides its weights and notes that it has. Only what changed is put back.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch

_OF_TORCH = frozenset(vars(torch.nn.Module())) - {"training"}
_PLAIN = (bool, int, float, str, type(None))
_MISSING = object()
_Key = tuple[int, str, bool]


class _Held(NamedTuple):
    value: Any
    mark: Any
    saved: Any


class Snapshot:
    """Buffers and attributes of all modules of a model, as they are when it is made.

    With ``parameters`` their values are kept, too, which takes as much memory again. Without, a
    forward that writes to them cannot be undone, and then nothing else is: both belong together.
    """

    def __init__(self, model: torch.nn.Module, *, parameters: bool) -> None:
        self._modules = list(model.modules())
        self._parameters = [(p, _saved(p) if parameters else None) for p in model.parameters()]
        self._take()

    def _take(self) -> None:
        self._held = {key: _Held(v, _mark(v), _saved(v)) for key, v in self._now().items()}
        self._versions = [p._version for p, _ in self._parameters]
        self._look()

    def _look(self) -> None:
        """Note what tells at a glance that nothing changed: most forwards leave nothing behind."""
        homes = [home for module in self._modules for home in (vars(module), module._buffers)]
        self._sizes = [(home, len(home)) for home in homes]
        self._values = [(self._home(key), key[1], held.value) for key, held in self._held.items()]
        held = [held for held in self._held.values() if not isinstance(held.value, _PLAIN)]
        self._marked = [(h.value, h.mark) for h in held if not isinstance(h.mark, int)]

    def _unchanged(self) -> bool:
        return (
            all(p._version == n for (p, _), n in zip(self._parameters, self._versions, strict=True))
            and all(len(home) == n for home, n in self._sizes)
            and all(home.get(key, _MISSING) is value for home, key, value in self._values)
            and all(_mark(value) == mark for value, mark in self._marked)
        )

    def _now(self) -> dict[_Key, Any]:
        found: dict[_Key, Any] = {}
        for index, module in enumerate(self._modules):
            for key, value in vars(module).items():
                if key not in _OF_TORCH:
                    found[index, key, False] = value
            for key, value in module._buffers.items():
                found[index, key, True] = value
        return found

    def restore(self) -> None:
        """Put back whatever is not as it was."""
        if self._unchanged():
            return
        if not self._restored_parameters():
            self._take()
            return
        now = self._now()
        for key in now.keys() - self._held.keys():
            del self._home(key)[key[1]]
        for key, held in self._held.items():
            if key not in now or now[key] is not held.value or _mark(now[key]) != held.mark:
                self._put_back(key, held)
        self._look()

    def _restored_parameters(self) -> bool:
        """Put back parameters that were written to; False where their values were not kept."""
        for index, (parameter, saved) in enumerate(self._parameters):
            if parameter._version == self._versions[index]:
                continue
            if saved is None:
                return False
            with torch.no_grad():
                parameter.copy_(saved)
            self._versions[index] = parameter._version
        return True

    def _put_back(self, key: _Key, held: _Held) -> None:
        value = held.value
        if isinstance(value, torch.Tensor):
            if _mark(value) != held.mark:
                with torch.no_grad():
                    value.copy_(held.saved)
        elif _is_container(value):
            value = copy.deepcopy(held.saved)
        self._home(key)[key[1]] = value
        self._held[key] = held._replace(value=value, mark=_mark(value))

    def _home(self, key: _Key) -> dict[str, Any]:
        module = self._modules[key[0]]
        home: dict[str, Any] = module._buffers if key[2] else vars(module)
        return home


def _mark(value: Any) -> Any:
    """Return what is equal while a value is the same and nothing wrote to it."""
    if isinstance(value, torch.Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, dict):
        return {key: _mark(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mark(item) for item in value]
    return value if isinstance(value, _PLAIN) else id(value)


def _saved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.deepcopy(value) if _is_container(value) else None


def _is_container(value: Any) -> bool:
    """Return True for a dict, list or tuple of nothing but tensors and plain values."""
    if isinstance(value, dict):
        return all(map(_is_contained, value.values()))
    return isinstance(value, (list, tuple)) and all(map(_is_contained, value))


def _is_contained(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, *_PLAIN)) or _is_container(value)

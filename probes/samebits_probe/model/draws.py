"""Operations of a forward that draw random numbers, such as a dropout that is on in evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samebits_probe.model.attention import calling_function
from samebits_probe.model.tensor import same_bytes

Facts = dict[str, Any]
_MAX = 8


def of(model: Any, kwargs: Facts) -> list[Facts]:
    """Return the operations of a forward that draw, each with its function and line, the first ones."""
    with torch.no_grad(), _Draws() as draws:
        model(**kwargs)
    return list(draws.seen.values())[:_MAX]


class _Draws(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Notes the operations that draw: attention is one of those that torch marks, and draws nothing without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[str, str], Facts] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = _generators()
        result = func(*args, **(kwargs or {}))
        if not all(map(same_bytes, before, _generators())):
            op = func.name().removeprefix("aten::").split(".")[0]
            function, place = calling_function()
            self.seen.setdefault((op, place), {"op": op, "function": function, "place": place})
        return result


def _generators() -> list[torch.Tensor]:
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpu]

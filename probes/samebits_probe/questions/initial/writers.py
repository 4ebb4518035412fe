"""Which line of code wrote a tensor last, while a model is made."""

from __future__ import annotations

import linecache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samebits_probe.model.attention import calling_frame, function_of, place_of
from samebits_probe.model.tensor import is_plain

_BETWEEN = ("transformers/initialization.py", "transformers/utils/generic.py")
"""Files of transformers whose functions stand between a rule and torch."""


class Writes(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Notes for each place in memory the code that wrote it last, the whole of it at once."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[tuple[int, int], dict[str, str]] = {}
        """Address and number of elements -> function, place and code."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_view = any(
            r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
        )
        if isinstance(result, torch.Tensor) and is_plain(result) and not is_view:
            frame = calling_frame(*_BETWEEN)
            if frame is not None:
                code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                line = {"function": function_of(frame), "place": place_of(frame), "code": code}
                self._lines[_place_in_memory(result)] = line
        return result

    def of(self, tensor: torch.Tensor) -> dict[str, str] | None:
        """Return the code that wrote a tensor last; None where none was seen."""
        return self._lines.get(_place_in_memory(tensor))


def _place_in_memory(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.numel()

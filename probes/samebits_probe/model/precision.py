"""What does a model compute when every number is a float64: the top rung of the precision ladder.

A difference that is rounding shrinks from 1e-6 to 1e-15 there; one that is not keeps its size.
Casting a model's parameters is not enough: its code asks for float32 by name (norms, softmax,
rotary tables, routers, scans), and each of those puts float32's rounding back. A
TorchFunctionMode sees every such request, whatever module makes it, and answers with float64.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOW = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
_LOW_TYPES = {"torch.FloatTensor", "torch.HalfTensor", "torch.BFloat16Tensor"}
_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
_GROUPED = {"grouped_mm", "_grouped_mm"}
_NAMING = {torch.dtype, str}
_ASKED_DTYPE = torch.Tensor.dtype.__get__

_SAME_TABLE = 2.0**-16
"""Relative difference up to which a table and its float64 version are the same numbers."""


def promoted_copy(model: Any) -> Any:
    """Return a copy whose parameters, buffers and plain tensor attributes are float64."""
    twin = copy.deepcopy(model).double()
    for module in twin.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype in _LOW:
                setattr(module, name, value.double())
    compute_tables_again(twin)
    return twin


def compute_tables_again(twin: Any) -> None:
    """Replace buffers that the code computes, such as minimax's decays, by exact ones.

    A table that was rounded once disagrees with a formula for the same numbers that another
    branch evaluates. Buffers that a fresh model has otherwise are not the code's alone.
    """
    if not any(buffer.is_floating_point() for buffer in twin.buffers()):
        return
    try:
        with promotion(), torch.random.fork_rng(devices=[]):
            fresh = dict(type(twin)(copy.deepcopy(twin.config)).named_buffers())
    except Exception:  # noqa: BLE001  a class that cannot be made anew keeps its tables
        return
    for name, buffer in twin.named_buffers():
        exact = fresh.get(name)
        if exact is None or exact.dtype != buffer.dtype or exact.shape != buffer.shape:
            continue
        if buffer.is_floating_point() and same_table(exact, buffer):
            buffer.copy_(exact)


def same_table(exact: torch.Tensor, rounded: torch.Tensor) -> bool:
    """Return True if a table is the exact one as float32 holds it, or thereabouts."""
    apart = (exact.to(rounded.device) - rounded).abs()
    return bool((apart <= _SAME_TABLE * rounded.abs()).all())


class Promotion(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Answers every request for a smaller float with float64.

    ``torch.finfo`` is no tensor function and stays as it is: float32's smallest number is as
    good a mask in float64.

    ``claimed`` is what code that asks for the dtype of a float64 is told, if it is to take the
    branches that it takes in that dtype: what is computed in float64 alone says nothing of it.
    """

    def __init__(self, claimed: torch.dtype | None = None) -> None:
        super().__init__()
        self._claimed = claimed

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run ``func`` with every smaller float among its arguments replaced."""
        if func in _CASTS:
            return args[0].double()
        if not kwargs and len(args) == 1:  # most calls are for a shape or a dtype
            found = func(*args)
            asked = self._claimed is not None and found is torch.float64 and func == _ASKED_DTYPE
            return self._claimed if asked else found
        if getattr(func, "__name__", "") in _GROUPED:
            return _grouped_mm(*args, **kwargs or {})
        for value in args:
            if type(value) in _NAMING:
                args = tuple(map(_wider, args))
                break
        if not kwargs:
            return func(*args)
        return func(*args, **{name: _wider(value) for name, value in kwargs.items()})


def _wider(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return _LOW.get(value, value)
    return "torch.DoubleTensor" if isinstance(value, str) and value in _LOW_TYPES else value


def _grouped_mm(
    rows: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor, **_options: Any
) -> torch.Tensor:
    """Multiply each group of rows by its own matrix; torch's own refuses float64."""
    ends = [int(end) for end in offs]
    starts = [0, *ends[:-1]]
    done = [rows[a:b] @ weight for a, b, weight in zip(starts, ends, weights, strict=True)]
    rest = rows.new_zeros((rows.shape[0] - ends[-1], weights.shape[-1]))
    return torch.cat([*done, rest])


class Leaks(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Lists operations that give a smaller float all the same, such as scripted functions."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run ``func`` and look at what it gives."""
        result = func(*args, **kwargs or {})
        with torch._C.DisableTorchFunction():  # a promotion may claim another dtype
            if isinstance(result, torch.Tensor) and result.dtype in _LOW and result.numel() > 1:
                self.found.add(str(func))
        return result


def claimed_of(dtype: torch.dtype) -> torch.dtype | None:
    """Return what code is told of float64 in place of a model's ``dtype``.

    None for a smaller one than float32: such a model holds float32, too, and of a float64 nobody
    can tell which of the two it stands for.
    """
    return dtype if dtype == torch.float32 else None


@contextmanager
def promotion(claimed: torch.dtype | None = None) -> Iterator[None]:
    """Make float64 of every float that code inside asks for, by name or by default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Promotion(claimed):
            yield
    finally:
        torch.set_default_dtype(before)

"""Copies of a model in a higher precision, and code that runs in it.

Two callers compute a model again in more bits. The relations and a trace take ``promoted_copy``
and compute in float64. The precision ladder takes ``copy_in`` and computes in float64 and in
float32.

Rounding shrinks from 1e-6 to 1e-15 in float64, and a difference that is not rounding keeps its
size. It is not enough to cast the parameters: a model's code asks for float32 by name (norms,
softmax, rotary tables, routers, scans), and each request puts float32's rounding back. A
TorchFunctionMode sees every request, in any module, and answers it with the wider dtype.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from samebits_probe.model import meta, raised

Widening = dict[torch.dtype, torch.dtype]
"""Each smaller dtype -> the dtype that replaces it."""

_TO_FLOAT64: Widening = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
}
_WIDENINGS: dict[torch.dtype, Widening] = {
    torch.float64: {**_TO_FLOAT64, torch.complex64: torch.complex128},
    torch.float32: {torch.float16: torch.float32, torch.bfloat16: torch.float32},
}
"""The dtype of a rung -> each smaller dtype, and what replaces it on that rung."""
_TYPE_NAMES = {"torch.FloatTensor", "torch.HalfTensor", "torch.BFloat16Tensor"}
_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
_CASTS_BELOW_FLOAT32 = {torch.Tensor.half, torch.Tensor.bfloat16}
_GROUPED = {"grouped_mm", "_grouped_mm"}
_DTYPE_ARGUMENTS = {torch.dtype, str}
_GET_DTYPE = torch.Tensor.dtype.__get__

_LARGE = 1 << 30
"""Bytes of a copy above which a second model is made only of what is no parameter."""
_TABLE_TOLERANCE = 2.0**-16
"""Relative difference up to which a table and its float64 version are the same numbers."""


def promoted_copy(model: Any) -> Any:
    """Return a copy whose parameters, buffers and plain tensor attributes are float64.

    Unlike :func:`copy_in` it leaves complex tensors as they are, and always computes again what the
    code computes.
    """
    twin = copy.deepcopy(model).double()
    _widen_attributes(twin, _TO_FLOAT64)
    compute_again(twin)
    return twin


def copy_in(
    dtype: torch.dtype, model: Any, rounded: dict[str, str], *, shares: bool = False
) -> Any:
    """Return a copy in ``dtype`` that holds the numbers of ``model``.

    Tables are not computed again: the numbers that both sides of a pair store are compared by
    their bytes. ``rounded`` names tensors that the other side holds in a smaller dtype. They
    are rounded to that dtype first, so that both sides start from the same numbers.

    A copy that ``shares`` has no own values of large parameters: see :mod:`raised`.
    """
    memo: dict[int, Any] = _shared_parameters(model)
    if shares:
        memo |= raised.raised_parameters(model, dtype, rounded)
    twin = copy.deepcopy(model, memo)
    tensors = dict(twin.named_parameters(remove_duplicate=False))
    tensors |= dict(twin.named_buffers(remove_duplicate=False))
    with torch.no_grad():
        for name, smaller in rounded.items():
            if name in tensors and not isinstance(tensors[name], raised.Raised):
                tensors[name].data = (
                    tensors[name].data.to(getattr(torch, smaller)).to(tensors[name].dtype)
                )
    widening = _WIDENINGS[dtype]
    for tensor in (*twin.parameters(), *twin.buffers()):
        if isinstance(tensor, raised.Raised):
            continue
        if tensor.is_floating_point():
            values = tensor.data
            promoted = values.to(dtype)
            tensor.data = values.clone() if promoted is values else promoted
        elif tensor.dtype in widening:
            tensor.data = tensor.data.to(widening[tensor.dtype])
    _widen_attributes(twin, widening)
    return twin


def _shared_parameters(model: Any) -> dict[int, Any]:
    """Return a memo with which a deep copy shares the values of plain parameters.

    They are replaced one by one, so that a model and its copy need no room for a third.
    """
    return {
        id(parameter): torch.nn.Parameter(parameter.data, parameter.requires_grad)
        for parameter in model.parameters()
        if type(parameter) is torch.nn.Parameter and parameter.is_floating_point()
    }


def _widen_attributes(twin: Any, widening: Widening) -> None:
    """Widen tensors that are plain attributes of modules."""
    for _, module, key, value in _attributes(twin):
        if value.dtype in widening:
            setattr(module, key, value.to(widening[value.dtype]))


def _attributes(model: Any) -> list[tuple[str, Any, str, torch.Tensor]]:
    """Return the tensors that are plain attributes: name of the module, module, attribute, tensor."""
    return [
        (name, module, key, value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]


def compute_again(twin: Any) -> None:
    """Replace what the code computes, such as minimax's decays or gptj's scale, by exact numbers.

    These are buffers and plain tensor attributes. A table that was rounded once disagrees with a
    formula for the same numbers that another branch evaluates. A tensor that has other numbers in a
    fresh model does not come from the code alone, and stays.
    """
    attributes = _attributes(twin)
    computed = chain(twin.buffers(), (value for *_, value in attributes))
    if not any(tensor.is_floating_point() for tensor in computed):
        return
    if (fresh := _fresh_model(twin)) is None:
        return
    tables = dict(fresh.named_buffers())
    for name, buffer in twin.named_buffers():
        exact = tables.get(name)
        if exact is not None and exact.dtype == buffer.dtype and _same_table(exact, buffer):
            buffer.copy_(exact)
    exact_attributes = {(name, key): value for name, _, key, value in _attributes(fresh)}
    for name, module, key, value in attributes:
        exact = exact_attributes.get((name, key))
        if exact is not None and _same_table(exact, value):
            setattr(module, key, exact.to(value))


def _fresh_model(twin: Any) -> Any:
    """Return a model made in float64 from the config of ``twin``; None if it cannot be made.

    If ``twin`` is large or shares parameters, those of the fresh model have no values, unless a
    class that fits in memory twice needs them.
    """
    parameters = list(twin.parameters())
    shares = any(isinstance(parameter, raised.Raised) for parameter in parameters)
    large = sum(p.numel() * p.element_size() for p in parameters) > _LARGE
    fresh = _made_again(twin, meta.parameters_without_values()) if shares or large else None
    return fresh if fresh is not None or shares else _made_again(twin, nullcontext())


def _made_again(twin: Any, values: AbstractContextManager[None]) -> Any:
    try:
        with promotion(), torch.random.fork_rng(devices=[]), values:
            return type(twin)(copy.deepcopy(twin.config))
    except Exception:  # noqa: BLE001  a class that cannot be made again keeps what it has
        return None


def _same_table(exact: torch.Tensor, rounded: torch.Tensor) -> bool:
    """Return True if ``rounded`` holds the floats of ``exact``, as float32 rounds them."""
    if exact.is_meta or exact.shape != rounded.shape or not rounded.is_floating_point():
        return False
    distance = (exact.to(rounded) - rounded).abs()
    return bool((distance <= _TABLE_TOLERANCE * rounded.abs()).all())


@contextmanager
def arithmetic_in(dtype: torch.dtype, native: torch.dtype) -> Iterator[None]:
    """Give a ``native`` model's code ``dtype`` for every smaller float that it asks for."""
    with promotion(claimed_of(native)) if dtype == torch.float64 else Promotion32():
        yield


@contextmanager
def promotion(claimed: torch.dtype | None = None) -> Iterator[None]:
    """Give code float64 for every float that it asks for, by name or by default."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    _forget_results()
    try:
        with Promotion(claimed):
            yield
    finally:
        torch.set_default_dtype(default)
        _forget_results()


def _forget_results() -> None:
    """Empty the caches of functions of models, whose tables are of the precision in which they were called first."""
    for function in _cached_functions(len(sys.modules)):
        function.cache_clear()


@functools.lru_cache(maxsize=1)
def _cached_functions(_n_modules: int) -> tuple[Any, ...]:
    """Return what modeling code gave to ``functools.lru_cache``: functions and methods, decorated again or not."""
    modules = [
        m for n, m in list(sys.modules.items()) if n.rpartition(".")[2].startswith("modeling_")
    ]
    values = [value for module in modules for value in vars(module).values()]
    values += [v for kind in values if isinstance(kind, type) for v in vars(kind).values()]
    functions = [getattr(value, "__func__", value) for value in values]
    cells = [c for f in functions for c in getattr(f, "__closure__", None) or ()]
    functions += [cell.cell_contents for cell in cells if not _is_empty(cell)]
    kind = type(_cached_functions)
    return tuple({id(f): f for f in functions if isinstance(f, kind)}.values())


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:
        return True


def claimed_of(dtype: torch.dtype) -> torch.dtype | None:
    """Return the dtype that code sees in place of float64, in a model of ``dtype``.

    None for a dtype smaller than float32: such a model also holds float32, and a float64 does not
    show which of the two it replaces.
    """
    return dtype if dtype == torch.float32 else None


class Promotion(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Answers every request for a smaller float with float64.

    ``torch.finfo`` is not a tensor function and stays as it is: float32's smallest number is as
    good a mask in float64.

    ``claimed`` is the dtype that code reads from a float64 tensor. With it the code takes the
    branches that it takes in that dtype: a branch for float64 only would show nothing about them.
    """

    def __init__(self, claimed: torch.dtype | None = None) -> None:
        super().__init__()
        self._claimed = claimed

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` with every smaller float among its arguments replaced."""
        if func in _CASTS:
            return args[0].double()
        if not kwargs and len(args) == 1:  # most calls are for a shape or a dtype
            result = func(*args)
            claims = self._claimed is not None and result is torch.float64 and func == _GET_DTYPE
            return self._claimed if claims else result
        if getattr(func, "__name__", "") in _GROUPED:
            return _grouped_mm(*args, **kwargs or {})
        for value in args:
            if type(value) in _DTYPE_ARGUMENTS:
                args = tuple(map(_widened_argument, args))
                break
        if not kwargs:
            return func(*args)
        return func(*args, **{name: _widened_argument(value) for name, value in kwargs.items()})


def _widened_argument(value: Any) -> Any:
    if isinstance(value, str):
        return "torch.DoubleTensor" if value in _TYPE_NAMES else value
    return _widened_dtype(value, _TO_FLOAT64)


def _widened_dtype(value: Any, widening: Widening) -> Any:
    return widening.get(value, value) if isinstance(value, torch.dtype) else value


def _grouped_mm(
    rows: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor, **_options: Any
) -> torch.Tensor:
    """Multiply each group of rows by its own matrix; torch's own function refuses float64."""
    ends = [int(end) for end in offs]
    starts = [0, *ends[:-1]]
    products = [rows[a:b] @ weight for a, b, weight in zip(starts, ends, weights, strict=True)]
    return torch.cat([*products, rows.new_zeros((rows.shape[0] - ends[-1], weights.shape[-1]))])


class Promotion32(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Answers every request for a float smaller than float32 with float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` with every smaller float among its arguments replaced."""
        if func in _CASTS_BELOW_FLOAT32:
            return args[0].float()
        widening = _WIDENINGS[torch.float32]
        named = {name: _widened_dtype(value, widening) for name, value in (kwargs or {}).items()}
        return func(*(_widened_dtype(arg, widening) for arg in args), **named)


class Reordered(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Multiplies matrices with the terms of every sum in another order: even ones, then odd."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``, a matrix product with both factors reordered in the same way."""
        if (at := _FACTORS.get(func)) is not None:
            left, right = args[at], args[at + 1]
            n = left.shape[-1]
            order = torch.cat([torch.arange(0, n, 2), torch.arange(1, n, 2)]).to(left.device)
            factors = left.index_select(-1, order), right.index_select(right.ndim - 2, order)
            args = (*args[:at], *factors, *args[at + 2 :])
        return func(*args, **kwargs or {})


_FACTORS = {
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.baddbmm.default: 1,
}
"""Product of matrices -> index of its first factor among the arguments."""


class Leaks(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Lists operations that return a smaller float all the same, such as scripted functions."""

    def __init__(self, smaller: Widening = _TO_FLOAT64) -> None:
        super().__init__()
        self.leaks: set[str] = set()
        self._smaller = smaller

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` and look at its result."""
        result = func(*args, **kwargs or {})
        with real_dtypes():
            self.look(func, args, kwargs or {}, result)
        return result

    def look(self, func: Any, _args: Any, _kwargs: dict[str, Any], result: Any) -> None:
        """Note ``func`` if it returns a tensor in a smaller float."""
        if (
            isinstance(result, torch.Tensor)
            and result.dtype in self._smaller
            and result.numel() > 1
        ):
            self.leaks.add(str(func))


def said_of(leaks: Iterable[str]) -> str:
    """Return why float64 shows nothing where operations leak; '' if none does."""
    listed = ", ".join(sorted(leaks))
    return f"lower precision than float64 comes out of {listed}" if listed else ""


def smaller_than(dtype: torch.dtype | None) -> Widening:
    """Return the dtypes that a rung in ``dtype`` should not see; none for the native rung."""
    return {} if dtype is None else _WIDENINGS[dtype]


def real_dtypes() -> Any:
    """Switch the promotion off, which may claim another dtype, so that a float64 is seen as one."""
    return torch._C.DisableTorchFunction()

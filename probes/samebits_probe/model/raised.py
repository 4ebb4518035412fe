"""Parameters that keep their dtype in memory and compute in a higher precision.

A copy of a model in float64 needs two to four times the memory of its weights. A raised parameter
shares the values of the model's own one, and every operation that reads it gets them converted, for
the time of that operation. So a model that fits in memory once can climb the precision ladder.

Operations that only change the view of a parameter stay views. Lookups take their rows before they
convert. Matrix products convert a large factor in parts. An operation that writes to a raised
parameter raises, because the model's own values must stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

MIN_BYTES = 1 << 20
"""Size of a parameter from which it is raised; a smaller one is copied."""
PART_BYTES = 1 << 21
"""Memory for the part of a factor of a matrix product that is converted at once; it fits the cache."""

_aten = torch.ops.aten
_VIEWS = frozenset(
    {
        _aten.alias.default,
        _aten.detach.default,
        _aten.expand.default,
        _aten.permute.default,
        _aten.select.int,
        _aten.slice.Tensor,
        _aten.split.Tensor,
        _aten.split_with_sizes.default,
        _aten.squeeze.dim,
        _aten.t.default,
        _aten.transpose.int,
        _aten.unbind.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    }
)
_LOOKUPS = frozenset(
    {_aten.embedding.default, _aten.gather.default, _aten.index.Tensor, _aten.index_select.default}
)
"""Operations whose result has values of the first argument only, and fewer of them."""


class ParameterWritten(RuntimeError):  # noqa: N818  what happened, as a rung reports it
    """The model's code writes to a parameter during a forward."""


class Raised(torch.Tensor):  # type: ignore[misc]  # torch is Any to the host's mypy
    """A view of a parameter that computes in a wider dtype; it has that dtype to the code."""

    values: torch.Tensor
    """The parameter's own values, in its dtype."""
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: Any, values: torch.Tensor, dtype: torch.dtype) -> Any:
        """Return a tensor of the shape of ``values`` and of ``dtype`` without memory of its own."""
        raised = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), dtype=dtype, device=values.device
        )
        raised.values = values
        return raised

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` on the values, converted where it computes with them."""
        named = kwargs or {}
        if func in _VIEWS:
            return _rewrapped(func(args[0].values, *args[1:], **named), args[0].dtype)
        if func in _LOOKUPS and isinstance(args[0], Raised):
            rest = (_converted(value) for value in args[1:])
            return func(args[0].values, *rest, **named).to(args[0].dtype)
        product = _PRODUCTS.get(func)
        if product is not None and not named:
            return product(func, *args)
        if func._schema.is_mutable and _writes(func, args, named):
            raise ParameterWritten(f"{func} writes to a parameter, which has no copy at this size")
        return func(
            *(_converted(value) for value in args),
            **{name: _converted(value) for name, value in named.items()},
        )

    def __repr__(self) -> str:
        """Return shape and dtypes; the values would be converted to be printed."""
        return f"Raised({tuple(self.shape)}, {self.values.dtype} as {self.dtype})"

    def __deepcopy__(self, _memo: dict[int, Any]) -> Raised:
        """Return the tensor itself."""
        return self  # nothing writes to it


def raised_parameters(model: Any, dtype: torch.dtype, rounded: dict[str, str]) -> dict[int, Raised]:
    """Return id -> raised tensor of every large parameter of a model.

    ``rounded`` are names of tensors and the smaller dtype to which their values are rounded first.
    """
    raised = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if _is_large(parameter) and (id(parameter) not in raised or name in rounded):
            values = parameter.data
            if name in rounded:
                values = values.to(getattr(torch, rounded[name]))
            raised[id(parameter)] = Raised(values, dtype)
    return raised


def working_bytes(model: Any, dtype: torch.dtype) -> int:
    """Return the bytes that a copy with raised parameters needs beside its model.

    These are the copies of small parameters, and the largest one converted twice: a product of more
    than two matrices may need two factors.
    """
    parameters = list(model.parameters())
    copied = sum(p.numel() for p in parameters if not _is_large(p))
    largest = max((p.numel() for p in parameters if _is_large(p)), default=0)
    return int((copied + 2 * largest) * dtype.itemsize)


def _is_large(parameter: torch.Tensor) -> bool:
    """Return True for an ordinary float parameter of at least MIN_BYTES."""
    if type(parameter) is not torch.nn.Parameter or not parameter.is_floating_point():
        return False
    return bool(parameter.numel() * parameter.element_size() >= MIN_BYTES)


def _rewrapped(views: Any, dtype: torch.dtype) -> Any:
    if isinstance(views, torch.Tensor):
        return Raised(views, dtype)
    return type(views)(Raised(view, dtype) for view in views)


def _converted(value: Any) -> Any:
    """Return an argument with every raised tensor in it converted."""
    if isinstance(value, Raised):
        return value.values.to(value.dtype)
    return type(value)(map(_converted, value)) if isinstance(value, list | tuple) else value


def _writes(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if isinstance(value, Raised):
            return True
    return False


def _in_parts(left: Any, right: Raised, out: Any) -> None:
    """Write the product of two matrices to ``out``; ``right`` is converted column by column.

    Every part is converted into the same memory, which stays in the cache. Fresh memory for each
    would be filled twice by heap.fill_unwritten, and cost more than the product.
    """
    values, rows = right.values, right.shape[0]
    width = max(1, PART_BYTES // (max(1, rows) * right.element_size()))
    memory = _memory_of(min(width, right.shape[1]) * rows, right)
    by_column = values.stride(0) == 1
    for first in range(0, right.shape[1], width):
        part = values[:, first : first + width]
        shape = part.shape[::-1] if by_column else part.shape
        converted = memory[: part.numel()].view(shape)
        converted = converted.t() if by_column else converted
        converted.copy_(part)
        torch.mm(left, converted, out=out[:, first : first + width])


def _memory_of(size: int, like: torch.Tensor) -> torch.Tensor:
    """Return memory for ``size`` elements of a part; the next call returns the same."""
    key = (like.dtype, like.device)
    if key not in _MEMORY or _MEMORY[key].numel() < size:
        _MEMORY[key] = torch.empty(size, dtype=like.dtype, device=like.device)
    return _MEMORY[key]


_MEMORY: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}


def _is_in_parts(right: Any) -> bool:
    return isinstance(right, Raised) and right.numel() * right.element_size() > PART_BYTES


def _matrix_product(func: Any, left: Any, right: Any) -> Any:
    """Multiply matrices; a large second factor column by column."""
    left = _converted(left)
    if not _is_in_parts(right):
        return func(left, _converted(right))
    product = left.new_empty((left.shape[0], right.shape[1]))
    _in_parts(left, right, product)
    return product


def _matrix_product_plus(func: Any, bias: Any, left: Any, right: Any) -> Any:
    """Multiply matrices and add a bias, which may be a vector or a matrix."""
    bias = _converted(bias)
    if not _is_in_parts(right):
        return func(bias, _converted(left), _converted(right))
    return _matrix_product(_aten.mm.default, left, right) + bias


def _batch_product(func: Any, left: Any, right: Any) -> Any:
    """Multiply batches of matrices, such as those of experts; a large second one by matrix."""
    left = _converted(left)
    if not _is_in_parts(right):
        return func(left, _converted(right))
    product = left.new_empty((*left.shape[:2], right.shape[2]))
    for matrix, values, out in zip(left, right.values, product, strict=True):
        _in_parts(matrix, Raised(values, right.dtype), out)
    return product


_PRODUCTS: dict[Any, Callable[..., Any]] = {
    _aten.mm.default: _matrix_product,
    _aten.addmm.default: _matrix_product_plus,
    _aten.bmm.default: _batch_product,
}

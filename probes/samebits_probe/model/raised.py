"""Parameters that keep their dtype in memory and compute in a higher precision.

A copy of a model in float64 needs two to four times the memory of its weights. A raised parameter
shares the values of the model's own one, and every operation that reads it gets them converted, for
the time of that operation. So a model that fits in memory once can climb the precision ladder.

Operations that only change the view of a parameter stay views. Lookups take their rows before they
convert. Matrix products convert a large factor in parts. An operation that writes to a raised
parameter raises, because the model's own values must stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_BYTES = 1 << 20
"""Size of a parameter from which it is raised; a smaller one is copied."""
PART_BYTES = 1 << 20
"""Largest part of a factor of a matrix product that is converted at once; it stays in the cache."""

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
    {
        _aten.embedding.default,
        _aten.gather.default,
        _aten.index.Tensor,
        _aten.index_select.default,
    }
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
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run ``func`` on the values, converted where it computes with them.

        Raises:
            ParameterWritten: it would write to them.

        """
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
            msg = f"{func} writes to a parameter, which has no copy at this size"
            raise ParameterWritten(msg)
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
    if isinstance(value, list | tuple):
        return type(value)(map(_converted, value))
    return value


def _writes(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if an operation writes to a raised tensor among its arguments."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if isinstance(value, Raised):
            return True
    return False


def _parts(factor: Any, dim: int) -> list[Any]:
    """Return a factor cut along ``dim`` so that a converted part has at most PART_BYTES."""
    if not isinstance(factor, Raised):
        return [factor]
    size = factor.numel() * factor.element_size()
    return list(factor.values.chunk(max(1, -(-size // PART_BYTES)), dim))


def _matrix_product(func: Any, left: Any, right: Any) -> Any:
    """Multiply matrices; a large second factor column by column."""
    dtype = right.dtype
    left = _converted(left)
    columns = [func(left, part.to(dtype)) for part in _parts(right, 1)]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def _matrix_product_plus(func: Any, bias: Any, left: Any, right: Any) -> Any:
    """Multiply matrices and add a bias, which may be a vector or a matrix."""
    dtype = right.dtype
    bias, left = _converted(bias), _converted(left)
    parts = _parts(right, 1)
    if len(parts) == 1:
        return func(bias, left, parts[0].to(dtype))
    products = torch.cat([left @ part.to(dtype) for part in parts], 1)
    return products + bias


def _batch_product(func: Any, left: Any, right: Any) -> Any:
    """Multiply batches of matrices, such as those of experts; a large second one in parts."""
    dtype = right.dtype
    left, parts = _converted(left), _parts(right, 0)
    if len(parts) == 1:
        return func(left, parts[0].to(dtype))
    lefts = left.split([part.shape[0] for part in parts])
    return torch.cat([func(a, b.to(dtype)) for a, b in zip(lefts, parts, strict=True)])


_PRODUCTS: dict[Any, Callable[..., Any]] = {
    _aten.mm.default: _matrix_product,
    _aten.addmm.default: _matrix_product_plus,
    _aten.bmm.default: _batch_product,
}

"""The token positions at which two observed tensors differ."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.compare.metrics import differing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samebits.compare.pair import TensorSource
    from samebits.records.tensor import TensorRef

    Ranges = tuple[tuple[int, int], ...] | None

MAX_NUMBERS = 4
"""Numbers of a row that are shown."""


@dataclass(frozen=True)
class Observed:
    """Whether two tensors hold the same bytes; ``same`` is None if that is unknown."""

    same: bool | None
    what: str
    """In a few words: ``the same``, or the positions that differ."""
    first: int | None = None
    """The first position that differs, if known."""


SAME = Observed(same=True, what="the same")


def compare_positions(
    reference: TensorRef, candidate: TensorRef, values: TensorSource, ranges: Ranges = None
) -> Observed:
    """Compare two tensors whose second to last axis is the token positions.

    ``ranges`` are the positions of each row of the batch that are not padding. Tensors of different
    shapes are compared if only the layout of batch and heads differs: axes of length 1, batch and
    heads in one axis, or key-value heads repeated for every head that reads them.
    """
    if reference.hash == candidate.hash:
        return SAME
    if reference.dtype != candidate.dtype:
        return Observed(same=False, what=f"{reference.dtype} → {candidate.dtype}")
    same_shape = reference.shape == candidate.shape
    if not (values.has(reference) and values.has(candidate)):
        if same_shape and ranges is None:
            return Observed(same=False, what="different bytes")
        return Observed(same=None, what="not comparable: the values of both are not stored")
    a, b = values.tensor(reference), values.tensor(candidate)
    pair = (a, b) if same_shape else same_layout(a, b)
    if pair is None:
        return Observed(
            same=None, what=f"different shapes: {list(reference.shape)} → {list(candidate.shape)}"
        )
    differs = differing_positions(*pair, ranges)
    if differs.any():
        return Observed(same=False, what=positions_text(differs), first=int(np.argmax(differs)))
    return SAME if ranges is None else Observed(same=True, what="the same in real rows")


def same_layout(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return both as [batch times heads, positions, numbers]; None if that is impossible."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-2:] != b.shape[-2:]:
        return None
    if a.ndim == b.ndim == 4 and a.shape[0] == b.shape[0]:
        a, b = _repeated(a, b.shape[1]), _repeated(b, a.shape[1])
    x, y = (array.reshape(-1, *array.shape[-2:]) for array in (a, b))
    if 1 in (len(x), len(y)):
        x, y = np.broadcast_arrays(x, y)
    return (x, y) if x.shape == y.shape else None


def _repeated(a: NDArray[Any], heads: int) -> NDArray[Any]:
    n = a.shape[1]
    return np.repeat(a, heads // n, axis=1) if n and heads > n and heads % n == 0 else a


def differing_positions(
    a: NDArray[Any], b: NDArray[Any], ranges: Ranges = None
) -> NDArray[np.bool_]:
    """Return, for each position, whether any number of a real row differs there."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if np.iscomplexobj(a):
        a, b = (x.view(x.real.dtype) for x in (a, b))
    positions = a.shape[-2] if a.ndim > 1 else 1
    rows = prod(a.shape[:-2])
    by_row = np.asarray(differing(a, b).reshape(rows, positions, -1).any(axis=2))
    is_padded = ranges is not None and max(stop for _, stop in ranges) == positions
    if ranges is None or not is_padded or rows % len(ranges):
        return np.asarray(by_row.any(axis=0))
    by_batch_row = by_row.reshape(len(ranges), -1, positions).any(axis=1)
    axis = np.arange(positions)
    real = np.array([(axis >= start) & (axis < stop) for start, stop in ranges])
    return np.asarray((by_batch_row & real).any(axis=0))


def positions_text(differs: NDArray[np.bool_]) -> str:
    """Return in words which positions differ; at least one does."""
    n, differing = len(differs), np.flatnonzero(differs)
    first = int(differing[0])
    if len(differing) == n:
        return "different bytes at every position" if n > 1 else "different bytes"
    if len(differing) == n - first:
        before = "position 0" if first == 1 else f"positions 0 to {first - 1}"
        return f"the same at {before}, different bytes from position {first} on"
    return f"different bytes at {len(differing)} of {n} positions, the first is {first}"


def first_row(ref: TensorRef, values: TensorSource, position: int) -> str:
    """Return the first numbers of the first row at a position, '' if values are not stored."""
    if not values.has(ref):
        return ""
    array = values.tensor(ref)
    flat = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    return row_text(flat[position]) if position < len(flat) else ""


def row_text(row: NDArray[Any]) -> str:
    """Return the first few numbers of a row."""
    text = ", ".join(_number_text(x) for x in row.reshape(-1)[:MAX_NUMBERS])
    return f"{text} …" if row.size > MAX_NUMBERS else text


def _number_text(x: Any) -> str:  # noqa: ANN401  any number of numpy or ml_dtypes
    return f"{complex(x):.3g}" if np.iscomplexobj(x) else f"{float(x):.3g}"

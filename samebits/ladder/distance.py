"""Distance between two tensors of one kind, whatever their dtypes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from samebits.compare.pair import TensorSource
from samebits.records.ladder import Errors
from samebits.records.tensor import TensorRef


class Distance(NamedTuple):
    """A distance between two tensors of equal shape."""

    max_abs: float
    """Over the elements that are finite on both sides."""
    same_values: bool
    """True if no element differs, apart from the dtypes; -0.0 is not 0.0."""
    finite_alike: bool
    """True if NaN and each infinity are at the same positions."""


def tensor_distance(
    reference: TensorRef | None,
    candidate: TensorRef | None,
    values: TensorSource,
    rows: NDArray[np.bool_] | None = None,
) -> Distance | None:
    """Return the distance of two tensors over ``rows`` (a mask of the leading axes).

    None if one is missing, its values are not stored, or their shapes differ.
    """
    if reference is None or candidate is None or reference.shape != candidate.shape:
        return None
    if reference == candidate:
        return Distance(0.0, same_values=True, finite_alike=True)
    if not (values.has(reference) and values.has(candidate)):
        return None
    return array_distance(values.tensor(reference), values.tensor(candidate), rows)


def array_distance(
    reference: NDArray[Any], candidate: NDArray[Any], rows: NDArray[np.bool_] | None = None
) -> Distance:
    """Return the distance of two arrays of equal shape."""
    a, b = _as_float64(reference, rows), _as_float64(candidate, rows)
    finite = np.isfinite(a) & np.isfinite(b)
    if finite.all():
        same_values = bool(np.array_equal(a.view(np.uint64), b.view(np.uint64)))
        largest = float(np.abs(a - b).max(initial=0.0))
        return Distance(largest, same_values=same_values, finite_alike=True)
    same_kinds = bool(np.array_equal(_kinds(a), _kinds(b)))
    distances = np.abs(a[finite] - b[finite])
    same = same_kinds and bool(np.array_equal(a[finite].view(np.uint64), b[finite].view(np.uint64)))
    return Distance(float(distances.max(initial=0.0)), same_values=same, finite_alike=same_kinds)


def _as_float64(array: NDArray[Any], rows: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    chosen = array if rows is None else array[rows]
    if chosen.dtype.kind == "c":
        chosen = np.stack([chosen.real, chosen.imag])
    return np.ascontiguousarray(chosen).astype(np.float64)


def _kinds(array: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return 0 where finite, else 1 for NaN, 2 for inf and 3 for -inf."""
    kinds = np.zeros(array.shape, np.int8)
    kinds[np.isnan(array)] = 1
    kinds[np.isposinf(array)] = 2
    kinds[np.isneginf(array)] = 3
    return kinds


def own_errors(
    own: tuple[TensorRef | None, TensorRef | None],
    exact: tuple[TensorRef | None, TensorRef | None],
    values: TensorSource,
    rows: NDArray[np.bool_] | None = None,
) -> Errors | None:
    """Return the distance of each side from its own float64, where the two sides differ.

    None if something is missing. Where both sides hold the same number, neither is worse.
    """
    refs = (*own, *exact)
    if any(ref is None or not values.has(ref) for ref in refs):
        return None
    if len({ref.shape for ref in refs if ref is not None}) > 1:
        return None
    a, b, x, y = (_as_float64(values.tensor(ref), rows) for ref in refs if ref is not None)
    counted = (a != b) & np.isfinite(a) & np.isfinite(b) & np.isfinite(x) & np.isfinite(y)
    n = int(np.count_nonzero(counted))
    if not n:
        return None
    reference, candidate = a[counted] - x[counted], b[counted] - y[counted]
    return Errors(n=n, reference=_rms(reference), candidate=_rms(candidate))


def _rms(array: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(array))))

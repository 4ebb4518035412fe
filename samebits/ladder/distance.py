"""How far apart are two tensors of one kind, whatever their dtypes?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from samebits.records.ladder import Errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samebits.compare.pair import TensorSource
    from samebits.records.tensor import TensorRef


class Apart(NamedTuple):
    """A distance between two tensors of equal shape."""

    max_abs: float
    """Over the elements that are finite on both sides."""
    same_values: bool
    """True if no element differs, dtypes aside; -0.0 is not 0.0."""
    finite_alike: bool
    """True if NaN and each infinity stand at the same places."""


def apart(
    one: TensorRef | None,
    other: TensorRef | None,
    values: TensorSource,
    rows: NDArray[np.bool_] | None = None,
) -> Apart | None:
    """Return how far apart two tensors are over ``rows`` (a mask of the leading axes).

    None where one is missing, its values are not stored, or their shapes differ.
    """
    if one is None or other is None or one.shape != other.shape:
        return None
    if one == other:
        return Apart(0.0, same_values=True, finite_alike=True)
    if not (values.has(one) and values.has(other)):
        return None
    return between(values.tensor(one), values.tensor(other), rows)


def between(one: NDArray[Any], other: NDArray[Any], rows: NDArray[np.bool_] | None = None) -> Apart:
    """Return how far apart two arrays of equal shape are."""
    a, b = _wide(one, rows), _wide(other, rows)
    alike = bool(np.array_equal(_kinds(a), _kinds(b)))
    finite = np.isfinite(a) & np.isfinite(b)
    distances = np.abs(a[finite] - b[finite])
    same = alike and bool(np.array_equal(a[finite].view(np.uint64), b[finite].view(np.uint64)))
    return Apart(float(distances.max(initial=0.0)), same_values=same, finite_alike=alike)


def _wide(array: NDArray[Any], rows: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    chosen = array if rows is None else array[rows]
    if chosen.dtype.kind == "c":
        chosen = np.stack([chosen.real, chosen.imag])
    return np.ascontiguousarray(chosen).astype(np.float64)


def _kinds(array: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return 0 where finite, else which of NaN and the infinities it is."""
    found = np.zeros(array.shape, np.int8)
    found[np.isnan(array)] = 1
    found[np.isposinf(array)] = 2
    found[np.isneginf(array)] = 3
    return found


def own_errors(
    own: tuple[TensorRef | None, TensorRef | None],
    exact: tuple[TensorRef | None, TensorRef | None],
    values: TensorSource,
    rows: NDArray[np.bool_] | None = None,
) -> Errors | None:
    """Return how far each side is from its own float64, where the two sides differ.

    None where something is missing. Where both sides hold the same number neither is worse.
    """
    refs = (*own, *exact)
    if any(ref is None or not values.has(ref) for ref in refs):
        return None
    if len({ref.shape for ref in refs if ref is not None}) > 1:
        return None
    a, b, x, y = (_wide(values.tensor(ref), rows) for ref in refs if ref is not None)
    where = (a != b) & np.isfinite(a) & np.isfinite(b) & np.isfinite(x) & np.isfinite(y)
    n = int(np.count_nonzero(where))
    if not n:
        return None
    one, other = a[where] - x[where], b[where] - y[where]
    return Errors(n=n, reference=_rms(one), candidate=_rms(other))


def _rms(array: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(array))))

"""Distance between floats in units in the last place (ULP).

The bits of a float are sign and magnitude. Read as integers on one line (negative floats below
zero), neighbours differ by one. -0.0 and +0.0 map to the same integer: their distance is 0,
although their bytes differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.records.tensor import ITEM_SIZES

FLOATS = frozenset(name for name in ITEM_SIZES if "float" in name)
"""Names of the real floating dtypes; numpy's own ``kind`` says void for those of ml_dtypes."""

_SIGNED_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def ordered(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position of every float on the integer line of its dtype."""
    bits = values.view(_SIGNED_INTEGERS[values.dtype.itemsize]).astype(np.int64)
    lowest = -(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)


def distance(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return |a - b| of two integer arrays of one dtype, exactly, as unsigned integers.

    A signed subtraction wraps around to the right unsigned result.
    """
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    difference: NDArray[Any] = np.where(a > b, a - b, b - a).view(unsigned)
    return difference


def coarser(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype with fewer bits of mantissa."""
    return a if _mantissa_bits(a) <= _mantissa_bits(b) else b


def _mantissa_bits(dtype: np.dtype[Any]) -> int:
    if dtype.kind == "f":
        return np.finfo(dtype).nmant
    import ml_dtypes  # noqa: PLC0415  see samebits.records.tensor

    return int(ml_dtypes.finfo(dtype).nmant)  # type: ignore[no-untyped-call]  # it has no stubs


def max_ulp(a: NDArray[Any], b: NDArray[Any]) -> int | None:
    """Return the largest distance between floats, in units of the coarser dtype.

    Values of the finer dtype are first rounded to the coarser one. None if either dtype is not a
    float; 0 for empty arrays.
    """
    if a.dtype.name not in FLOATS or b.dtype.name not in FLOATS:
        return None
    if not a.size:
        return 0
    unit = coarser(a.dtype, b.dtype)
    with np.errstate(over="ignore"):
        distances = distance(ordered(a.astype(unit)), ordered(b.astype(unit)))
    return int(distances.max())

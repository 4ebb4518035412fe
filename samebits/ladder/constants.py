"""Do both sides hold the same numbers before anything is computed?

What is computed says little here: float64 makes a model's arithmetic exact, and one ulp of one
frequency then looks like any other small number. Bytes say it at once. The one exception is a
dtype policy: a side that holds exactly the other's numbers, rounded to a smaller dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from samebits.compare.outcome import differs
from samebits.records.ladder import Constant, Side
from samebits.records.tensor import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.compare.pair import TensorSource
    from samebits.records.comparison import ItemComparison, SignalComparison
    from samebits.records.ids import Signal
    from samebits.records.tensor import TensorRef

STORED: frozenset[Signal] = frozenset({"weights", "buffers", "inv_freq"})
"""Signals that hold what is there before anything is computed."""


def constants(signals: Iterable[SignalComparison], values: TensorSource) -> tuple[Constant, ...]:
    """Return every stored tensor that differs, and how."""
    return tuple(
        _constant(signal.signal, item, values)
        for signal in signals
        if signal.signal in STORED
        for item in signal.items
        if differs(item)
    )


def _constant(signal: Signal, item: ItemComparison, values: TensorSource) -> Constant:
    one, other = item.reference, item.candidate
    kind: Literal["changed", "cast", "not known"] = "changed"
    coarser: Side | None = None
    if one is None or other is None:
        # a tensor in parts, in other dtypes: the parts are not there to be compared
        kind = "not known" if item.note.startswith("dtype ") else "changed"
    elif one.hash != other.hash and one.dtype != other.dtype:
        kind, coarser = cast_between(one, other, values)
    return Constant(signal=signal, name=item.name, kind=kind, coarser=coarser, note=item.note)


def cast_between(
    one: TensorRef, other: TensorRef, values: TensorSource
) -> tuple[Literal["changed", "cast", "not known"], Side | None]:
    """Return whether one of two tensors of other dtypes is the other, rounded, and which."""
    if one.shape != other.shape:
        return "changed", None
    if not (values.has(one) and values.has(other)):
        return "not known", None
    a, b = values.tensor(one), values.tensor(other)
    with np.errstate(all="ignore"):
        down = a.astype(NUMPY_DTYPES[other.dtype]).tobytes() == b.tobytes()
        up = b.astype(NUMPY_DTYPES[one.dtype]).tobytes() == a.tobytes()
    if down and up:
        return "cast", None
    if down:
        return "cast", "candidate"
    return ("cast", "reference") if up else ("changed", None)

"""Comparison of the stored numbers: those that exist before anything is computed.

Computed values show little here: float64 makes a model's arithmetic exact, and a difference of one
ULP in one frequency then looks like any other small number. The bytes show it at once. The one
exception is a dtype policy: a side that holds exactly the other's numbers, rounded to a smaller
dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from samebits.compare.outcome import differs
from samebits.compare.pair import TensorSource
from samebits.compare.phases import STORED
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.ladder import Constant, Side
from samebits.records.subject import Reason
from samebits.records.tensor import NUMPY_DTYPES, TensorRef


def constants(signals: Iterable[SignalComparison], values: TensorSource) -> tuple[Constant, ...]:
    """Return every stored tensor that differs, and how."""
    return tuple(
        _constant(signal.signal, item, values)
        for signal in signals
        if signal.signal in STORED
        for item in filter(differs, signal.items)
    )


def _constant(signal: Signal, item: ItemComparison, values: TensorSource) -> Constant:
    reference, candidate = item.reference, item.candidate
    kind: Literal["changed", "cast", "not known"] = "changed"
    coarser: Side | None = None
    if reference is None or candidate is None:
        # a tensor in parts with different dtypes: the parts are not available here
        kind = "not known" if item.reason == Reason.DTYPE else "changed"
    elif reference.hash != candidate.hash and reference.dtype != candidate.dtype:
        kind, coarser = cast_between(reference, candidate, values)
    return Constant(signal=signal, subject=item.subject, kind=kind, coarser=coarser, note=item.note)


def cast_between(
    reference: TensorRef, candidate: TensorRef, values: TensorSource
) -> tuple[Literal["changed", "cast", "not known"], Side | None]:
    """Return whether one of two tensors is the other, rounded to its dtype, and which."""
    if reference.shape != candidate.shape:
        return "changed", None
    if not (values.has(reference) and values.has(candidate)):
        return "not known", None
    a, b = values.tensor(reference), values.tensor(candidate)
    with np.errstate(all="ignore"):
        down = a.astype(NUMPY_DTYPES[candidate.dtype]).tobytes() == b.tobytes()
        up = b.astype(NUMPY_DTYPES[reference.dtype]).tobytes() == a.tobytes()
    if down and up:
        return "cast", None
    if down:
        return "cast", "candidate"
    return ("cast", "reference") if up else ("changed", None)

"""Comparison of two tensors, byte for byte, over the rows that count.

The order of the checks is presence, shape, dtype, bytes. A distance is measured after that and
never decides.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from samebits.compare.metrics import measure
from samebits.compare.pair import TensorSource
from samebits.records.comparison import ItemComparison, Metrics
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef

EMPTY = "it has no elements"
NO_VALUES = "the bytes differ; by how much is not known, because the values of both are not stored"
PADDED_NO_VALUES = (
    "the hashes differ; whether real rows or padding rows differ is not known, because the values "
    "of both are not stored"
)


def compare_tensors(
    subject: Subject,
    reference: TensorRef,
    candidate: TensorRef,
    values: TensorSource,
    *,
    real: NDArray[np.bool_] | None = None,
    logits: bool = False,
    tokens: Mapping[str, str] | None = None,
    positions: bool = False,
) -> ItemComparison:
    """Compare two tensors; the mask ``real`` [batch, positions] is False for padding.

    ``logits``, ``tokens`` and ``positions`` are those of :func:`samebits.compare.metrics.measure`.
    Differences in padding only show in ``pad_rows``. Padded tensors with different hashes and
    without stored values are `not compared`: the difference may be only in the padding.
    """
    item = ItemComparison(
        subject=subject, outcome="differs", reference=reference, candidate=candidate
    )
    if reference.shape != candidate.shape:
        return _updated(
            item, note=_difference_note("shape", list(reference.shape), list(candidate.shape))
        )
    if _is_empty(reference, real):
        return _updated(item, outcome="not compared", note=EMPTY, excused=True)
    padded = real is not None and not bool(real.all())
    if reference.hash == candidate.hash:
        return _updated(item, outcome="identical", pad_rows="identical" if padded else "none")
    if not (values.has(reference) and values.has(candidate)):
        return _unmeasured_item(item, padded=padded)
    a, b = values.tensor(reference), values.tensor(candidate)
    if real is None or not padded:
        metrics = measure(a, b, logits=logits, tokens=tokens, positions=positions)
        return _measured_item(item, metrics, None)
    metrics = measure(a, b, rows=real, logits=logits, tokens=tokens, positions=positions)
    pads = measure(a, b, rows=~real, logits=logits, tokens=tokens)
    return _measured_item(item, metrics, pads)


def unpaired(
    subject: Subject,
    reference: TensorRef | None,
    candidate: TensorRef | None,
    note: str = "",
    *,
    excused: bool = False,
) -> ItemComparison:
    """Return the item of a tensor that only one side has."""
    return ItemComparison(
        subject=subject,
        outcome="only here" if reference is None else "only in reference",
        reference=reference,
        candidate=candidate,
        note=note,
        excused=excused,
    )


def _is_empty(ref: TensorRef, real: NDArray[np.bool_] | None) -> bool:
    return ref.numel == 0 or (real is not None and not bool(real.any()))


def _unmeasured_item(item: ItemComparison, *, padded: bool) -> ItemComparison:
    dtypes = dtype_note(item)
    if dtypes:
        return _updated(item, note=dtypes)
    if padded:
        return _updated(item, outcome="not compared", note=PADDED_NO_VALUES)
    return _updated(item, note=NO_VALUES)


def _measured_item(item: ItemComparison, metrics: Metrics, pads: Metrics | None) -> ItemComparison:
    dtypes = dtype_note(item)
    same = not metrics.n_differ and not dtypes
    # The hashes differ with equal dtype and shape: some byte differs, in a real row or in padding.
    assert not same or (pads is not None and pads.n_differ)
    return _updated(
        item,
        outcome="identical" if same else "differs",
        metrics=None if same else metrics,
        pad_rows="none" if pads is None else "differ" if pads.n_differ else "identical",
        pad_metrics=pads if pads is not None and pads.n_differ else None,
        note=dtypes,
    )


def dtype_note(item: ItemComparison) -> str:
    """Return a note if the dtypes of both sides differ, else ''."""
    assert item.reference
    assert item.candidate
    a, b = item.reference.dtype, item.candidate.dtype
    return "" if a == b else _difference_note("dtype", a, b)


def _difference_note(what: str, reference: object, candidate: object) -> str:
    return f"{what} {reference} in the reference, {candidate} in the candidate"


def _updated(item: ItemComparison, **fields: object) -> ItemComparison:
    return item.model_copy(update=fields)

"""Are two tensors the same bytes, over the rows that count?

Checked in this order: presence, shape, dtype, bytes; a distance comes after that and never
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.metrics import measure
from samebits.records.comparison import ItemComparison, Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from samebits.compare.pair import TensorSource
    from samebits.records.tensor import TensorRef

EMPTY = "it has no elements"
NO_VALUES = "the bytes differ; how far is not known, as the values of both are not stored"
PADDED_NO_VALUES = (
    "the hashes differ, and whether real rows or padding rows do cannot be told "
    "while the values of both are not stored"
)


def compare_tensors(
    name: str,
    reference: TensorRef,
    candidate: TensorRef,
    values: TensorSource,
    *,
    real: NDArray[np.bool_] | None = None,
    logits: bool = False,
    tokens: Mapping[str, str] | None = None,
) -> ItemComparison:
    """Compare two tensors; ``real`` is the mask [batch, positions] of rows that are no padding.

    Whatever is behind the mask counts for nothing but ``pad_rows``. Without values, padded
    tensors of other hashes are `not compared`: the difference may be padding alone.
    """
    item = ItemComparison(name=name, outcome="differs", reference=reference, candidate=candidate)
    if reference.shape != candidate.shape:
        return _with(item, note=_unlike("shape", list(reference.shape), list(candidate.shape)))
    if _nothing_counts(reference, real):
        return _with(item, outcome="not compared", note=EMPTY, excused=True)
    padded = real is not None and not bool(real.all())
    if reference.hash == candidate.hash:
        return _with(item, outcome="identical", pad_rows="identical" if padded else "none")
    if not (values.has(reference) and values.has(candidate)):
        return _without_values(item, padded=padded)
    a, b = values.tensor(reference), values.tensor(candidate)
    if real is None or not padded:
        return _judged(item, measure(a, b, logits=logits, tokens=tokens), None)
    found = measure(a, b, rows=real, logits=logits, tokens=tokens)
    pads = measure(a, b, rows=~real, logits=logits, tokens=tokens)
    return _judged(item, found, pads)


def unpaired(
    name: str,
    reference: TensorRef | None,
    candidate: TensorRef | None,
    note: str = "",
    *,
    excused: bool = False,
) -> ItemComparison:
    """Return the item of a tensor that only one side has."""
    return ItemComparison(
        name=name,
        outcome="only here" if reference is None else "only in reference",
        reference=reference,
        candidate=candidate,
        note=note,
        excused=excused,
    )


def _nothing_counts(ref: TensorRef, real: NDArray[np.bool_] | None) -> bool:
    return ref.numel == 0 or (real is not None and not bool(real.any()))


def _without_values(item: ItemComparison, *, padded: bool) -> ItemComparison:
    other_dtype = dtype_note(item)
    if other_dtype:
        return _with(item, note=other_dtype)
    if padded:
        return _with(item, outcome="not compared", note=PADDED_NO_VALUES)
    return _with(item, note=NO_VALUES)


def _judged(item: ItemComparison, found: Metrics, pads: Metrics | None) -> ItemComparison:
    other_dtype = dtype_note(item)
    same = not found.n_differ and not other_dtype
    # Other hashes, one dtype, one shape: some byte differs, and if no real row has it, a pad has.
    assert not same or (pads is not None and pads.n_differ)
    return _with(
        item,
        outcome="identical" if same else "differs",
        metrics=None if same else found,
        pad_rows="none" if pads is None else "differ" if pads.n_differ else "identical",
        pad_metrics=pads if pads is not None and pads.n_differ else None,
        note=other_dtype,
    )


def dtype_note(item: ItemComparison) -> str:
    """Return that the dtypes of both sides are not the same, '' if they are."""
    assert item.reference
    assert item.candidate
    a, b = item.reference.dtype, item.candidate.dtype
    return "" if a == b else _unlike("dtype", a, b)


def _unlike(what: str, reference: object, candidate: object) -> str:
    return f"{what} {reference} in the reference, {candidate} here"


def _with(item: ItemComparison, **fields: object) -> ItemComparison:
    return item.model_copy(update=fields)

"""The distance between two results that should be equal."""

from __future__ import annotations

from samebits.records.record import Record


class Distance(Record):
    """The distance between the results of two ways to compute the same rows."""

    n: int
    """Number of elements compared."""
    n_differ: int
    """Number of elements whose bytes differ."""
    max_abs: float
    mean_abs: float
    argmax_changes: int | None = None
    """Logits only: number of positions whose argmax differs."""

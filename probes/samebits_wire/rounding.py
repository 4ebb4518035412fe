"""Rule for whether a difference between two computations is more than rounding."""

from __future__ import annotations

SHRUNK = (2.0**-53 / 2.0**-24) ** 0.5
"""Largest remainder in float64, as a fraction of the difference, for rounding.

Rounding shrinks with the unit roundoff, from float32's 2**-24 to float64's 2**-53 (IEEE 754). At
least half of that is required, on a logarithmic scale. A model in bfloat16 computes norms, states
and softmax in float32, so its differences shrink by at least as much.
"""

KEPT = 2.0**-3
"""Smallest remainder in float64, as a fraction of the difference, for two different functions.

Between the two limits the cause stays undecided: a constant that was rounded when the model was
made, for example, stays rounded in float64 and leaves a part of the difference (as minimax's decay
tables do).
"""


def shrinks(native: float, promoted: float) -> bool:
    """Return True if a difference of ``native`` almost vanishes in float64 (``promoted``)."""
    return promoted <= native * SHRUNK


def stays(native: float, promoted: float) -> bool:
    """Return True if a difference of ``native`` remains in float64 (``promoted``).

    A difference that shows only in float64, such as 0.0 against -0.0, has no ratio to judge by.
    """
    if native == 0 or shrinks(native, promoted):
        return False
    # a NaN is not a small remainder, so the comparison must be False for it
    return not promoted < native * KEPT

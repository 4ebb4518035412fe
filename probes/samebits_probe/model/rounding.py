"""Rule for whether a difference between two computations is more than rounding.

It is the rule of samebits/compare/standing.py; tests/compare/test_standing.py keeps the two equal.
This module does not need torch, so that the host's tests can load it.
"""

from __future__ import annotations

SHRUNK = (2.0**-53 / 2.0**-24) ** 0.5
"""Maximum share of a difference that remains in float64 if it is rounding."""
KEPT = 2.0**-3
"""Minimum share that remains in float64 if the two computations are different functions."""


def stays(native: float, promoted: float, dtype: str) -> bool:
    """Return True if a difference of ``native`` in ``dtype`` remains in float64 (``promoted``)."""
    if dtype == "float64" or native == 0 or promoted <= native * SHRUNK:
        return False
    # NaN does not count as a small remainder
    return not promoted < native * KEPT

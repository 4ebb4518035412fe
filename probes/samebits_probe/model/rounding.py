"""When is a difference between two ways called broken: the rule of samebits/compare/standing.py.

The host judges by the same rule; tests/compare/test_standing.py holds the two together. Nothing here
needs torch, so that the host's tests can load it.
"""

from __future__ import annotations

SHRUNK = (2.0**-53 / 2.0**-24) ** 0.5
"""What may be left of a difference in float64 if it is rounding."""
KEPT = 2.0**-3
"""What must be left of it if the two ways compute different functions."""


def stays(native: float, promoted: float, dtype: str) -> bool:
    """Return True if a difference of ``own`` in ``dtype`` is still there in float64."""
    if dtype == "float64" or native == 0 or promoted <= native * SHRUNK:
        return False
    # NaN is no small remainder
    return not promoted < native * KEPT

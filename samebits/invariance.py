"""Does a relation hold inside one cell, and if its bits differ, does float64 make it go away?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.invariant import Relation

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance from 1 to the next number (IEEE 754-2019; bfloat16: 8 bits of precision)."""


class Standing(StrEnum):
    """What is said of one relation in one cell."""

    HOLDS = "holds"
    SHRINKS = "shrinks"
    """The bits differ and in float64 the difference all but goes away, as rounding does."""
    STAYS = "broken"
    """The difference is there in float64, too: the two ways compute different functions."""
    UNKNOWN = "differs"
    """The bits differ and there is no float64 run to tell."""


def standing(relation: Relation, dtype: str) -> Standing:
    """Return how a relation stands in a cell of ``dtype``.

    Rounding shrinks with the unit roundoff, a different function does not. Half of that
    shrinking, on a logarithmic scale, must be seen: the geometric mean of both outcomes.
    """
    if relation.holds:
        return Standing.HOLDS
    if relation.distance is None or relation.promoted is None or dtype == "float64":
        return Standing.UNKNOWN
    ratio = UNIT_ROUNDOFF["float64"] / UNIT_ROUNDOFF[dtype]
    if relation.promoted.max_abs <= relation.distance.max_abs * ratio**0.5:
        return Standing.SHRINKS
    return Standing.STAYS

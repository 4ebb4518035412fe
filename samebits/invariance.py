"""Does a relation hold inside one cell, and if its bits differ, does float64 make it go away?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.invariant import Relation

SHRUNK = (2.0**-53 / 2.0**-24) ** 0.5
"""What may be left of a difference in float64 if it is rounding.

Rounding shrinks with the unit roundoff, from float32's 2**-24 to float64's 2**-53 (IEEE 754);
half of that, on a logarithmic scale, must be seen. A model in bfloat16 computes norms, states
and softmax in float32, so its differences shrink by no less.
"""

KEPT = 2.0**-3
"""What must be left of a difference in float64 if the two ways compute different functions.

Between the two nothing is said: a constant that was rounded when the model was made, for one,
stays rounded in float64 and leaves a part of the difference (minimax's decay tables do).
"""


class Standing(StrEnum):
    """What is said of one relation in one cell."""

    HOLDS = "holds"
    SHRINKS = "shrinks"
    """The bits differ and in float64 the difference all but goes away, as rounding does."""
    STAYS = "broken"
    """The difference is there in float64, too: the two ways compute different functions."""
    UNKNOWN = "differs"
    """The bits differ, and float64 does not tell why, or there is no float64 run."""


def standing(relation: Relation, dtype: str) -> Standing:
    """Return how a relation stands in a cell of ``dtype``."""
    if relation.holds:
        return Standing.HOLDS
    if relation.distance is None or relation.promoted is None or dtype == "float64":
        return Standing.UNKNOWN
    before, after = relation.distance.max_abs, relation.promoted.max_abs
    if after <= before * SHRUNK:
        return Standing.SHRINKS
    # NaN is no small remainder
    return Standing.UNKNOWN if after < before * KEPT else Standing.STAYS

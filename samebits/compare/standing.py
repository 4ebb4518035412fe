"""Does a relation hold inside one cell, and if its bits differ, does float64 make it go away?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.records.relations import Relation

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
    found = sizes(relation)
    return Standing.UNKNOWN if found is None or dtype == "float64" else judged(*found)


def sizes(relation: Relation) -> tuple[float, float] | None:
    """Return the difference that a relation is judged by and the same in float64; None: no such.

    It is that of the logits, or of the layers where the logits agree to the byte.
    """
    own, promoted = relation.distance, relation.promoted
    if own is None or own.n_differ:
        return (own.max_abs, promoted.max_abs) if own and promoted else None
    pairs = [
        (layer.distance.max_abs, layer.promoted.max_abs)
        for layer in relation.layers
        if layer.promoted
    ]
    before, after = zip(*pairs, strict=True) if pairs else ((), ())
    return (max(before), max(after)) if pairs else None


def judged(before: float, after: float) -> Standing:
    """Return what a difference of ``before`` is that is one of ``after`` in float64.

    One that float64 alone shows, such as 0.0 beside -0.0, has no ratio to judge by.
    """
    if after <= before * SHRUNK:
        return Standing.SHRINKS
    # NaN is no small remainder
    return Standing.UNKNOWN if before == 0 or after < before * KEPT else Standing.STAYS

"""Whether a relation holds inside one cell, judged by the same relation in float64."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.records.relations import Relation

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


class Standing(StrEnum):
    """The judgement of one relation in one cell."""

    HOLDS = "holds"
    ROUNDING = "rounding"
    """The bits differ, and the difference almost vanishes in float64, as rounding does."""
    BROKEN = "broken"
    """The difference is there in float64 too: the two ways compute different functions."""
    UNDECIDED = "undecided"
    """The bits differ, and float64 does not explain it or there is no float64 run."""


def judge_relation(relation: Relation, dtype: str) -> Standing:
    """Return the judgement of a relation in a cell of ``dtype``."""
    if relation.holds:
        return Standing.HOLDS
    pair = sizes(relation)
    return Standing.UNDECIDED if pair is None or dtype == "float64" else judged(*pair)


def sizes(relation: Relation) -> tuple[float, float] | None:
    """Return the difference that decides a relation, and the same in float64; None if unknown.

    It is the difference of the logits, or of the layers if the logits are equal byte for byte.
    """
    native, promoted = relation.distance, relation.promoted
    if native is None or native.n_differ:
        return (native.max_abs, promoted.max_abs) if native and promoted else None
    pairs = [
        (layer.distance.max_abs, layer.promoted.max_abs)
        for layer in relation.layers
        if layer.promoted
    ]
    before, after = zip(*pairs, strict=True) if pairs else ((), ())
    return (max(before), max(after)) if pairs else None


def judged(before: float, after: float) -> Standing:
    """Return the judgement of a difference ``before`` that is ``after`` in float64.

    A difference that shows only in float64, such as 0.0 against -0.0, has no ratio to judge by.
    """
    if after <= before * SHRUNK:
        return Standing.ROUNDING
    # a NaN is not a small remainder, so the comparison must be False for it
    return Standing.UNDECIDED if before == 0 or after < before * KEPT else Standing.BROKEN

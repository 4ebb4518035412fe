"""Whether a relation inside one cell holds, judged by the same difference in float64."""

from __future__ import annotations

from enum import StrEnum

from samebits.compare.standing import judged
from samebits.questions.relations.records import Relation


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
    if pair is None or dtype == "float64":
        return Standing.UNDECIDED
    judgement = judged(*pair)
    return Standing.BROKEN if judgement == "diverged" else Standing(judgement)


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

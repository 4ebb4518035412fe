"""What a report leaves out of relations that hold."""

import pytest

from samebits.questions.relations import QUESTION
from samebits.questions.relations.records import LayerDistance, Relation, RelationsSignal
from samebits.records.distance import Distance
from tests.support.builders import capture


def relation(n_differ, *layers, holds):
    def distance(n):
        return Distance(n=9, n_differ=n, max_abs=float(n), mean_abs=float(n))

    return Relation(
        relation="causality",
        case="9 tokens",
        holds=holds,
        distance=distance(n_differ),
        layers=tuple(
            LayerDistance(name=f"{i}", distance=distance(n)) for i, n in enumerate(layers)
        ),
        positions=(0.0, 0.0),
    )


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (relation(0, 0, 0, holds=True), False),
        (relation(1, 0, 0, holds=True), True),
        (relation(0, 0, 1, holds=True), True),
        (relation(0, 0, 0, holds=False), True),
    ],
    ids=["zeros", "logits differ", "a layer differs", "it does not hold"],
)
def test_zeros_of_relations_that_hold_are_left_out(before, kept):
    run = capture(relations=RelationsSignal(relations=(before,)))
    row = QUESTION.of_captures({"4.48": run}, "4.48")
    (after,) = row.stacks["4.48"].relations
    assert (after == before) == kept
    assert (after.holds, after.distance, after.case) == (before.holds, before.distance, before.case)
    assert bool(after.layers and after.positions) == kept

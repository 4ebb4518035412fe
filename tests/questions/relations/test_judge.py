import math
import sys

import pytest

from samebits.questions.relations.judge import Standing, judge_relation
from samebits.questions.relations.records import LayerDistance, Relation
from samebits.records.distance import Distance
from samebits.records.ids import DTYPES
from samebits_wire.rounding import KEPT, SHRUNK


def distance(size):
    return Distance(n=8, n_differ=1, max_abs=size, mean_abs=size / 8)


def relation(own, promoted, *, holds=False):
    return Relation(
        relation="causality",
        case="3 tokens",
        holds=holds,
        distance=None if own is None else distance(own),
        promoted=None if promoted is None else distance(promoted),
    )


LOSSY = [dtype for dtype in DTYPES if dtype != "float64"]


@pytest.mark.parametrize("dtype", LOSSY)
@pytest.mark.parametrize("size", [1e-7, 0.125, 3.4])
def test_both_sides_of_each_threshold(dtype, size):
    assert judge_relation(relation(size, size * SHRUNK), dtype) == Standing.ROUNDING
    above = math.nextafter(size * SHRUNK, math.inf)
    assert judge_relation(relation(size, above), dtype) == Standing.UNDECIDED
    assert judge_relation(relation(size, size * KEPT), dtype) == Standing.BROKEN
    below = math.nextafter(size * KEPT, 0.0)
    assert judge_relation(relation(size, below), dtype) == Standing.UNDECIDED


def test_what_was_seen_of_minimax_and_zamba2_is_not_called_broken():
    """Constants rounded at the start, and float32 states in a bfloat16 model."""
    assert judge_relation(relation(3.8e-06, 9.0e-08), "float32") == Standing.UNDECIDED
    assert judge_relation(relation(0.18, 1.2e-03), "bfloat16") == Standing.UNDECIDED
    assert judge_relation(relation(1.1e-05, 6.7e-12), "bfloat16") == Standing.ROUNDING


@pytest.mark.parametrize(
    ("own", "promoted", "stands"),
    [
        (7.9e-07, 1.6e-15, Standing.ROUNDING),
        (8.7e-03, 8.7e-03, Standing.BROKEN),
        (7e-06, 7e-06, Standing.BROKEN),
    ],
)
def test_the_cases_that_the_ladder_was_made_for(own, promoted, stands):
    assert judge_relation(relation(own, promoted), "float32") == stands


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_holds_holds_whatever_float64_says(dtype):
    assert judge_relation(relation(0.0, 1.0, holds=True), dtype) == Standing.HOLDS
    assert judge_relation(relation(None, None, holds=True), dtype) == Standing.HOLDS


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_float64_run_nothing_can_be_told(dtype):
    assert judge_relation(relation(1.0, None), dtype) == Standing.UNDECIDED
    assert judge_relation(relation(None, None), dtype) == Standing.UNDECIDED
    assert judge_relation(relation(None, 1.0), dtype) == Standing.UNDECIDED


def test_float64_cannot_be_promoted():
    assert judge_relation(relation(1e-15, 1e-15), "float64") == Standing.UNDECIDED


def test_a_difference_of_bytes_alone_is_not_broken():
    assert judge_relation(relation(0.0, 0.0), "float32") == Standing.ROUNDING


def test_what_is_there_only_in_float64_has_no_ratio_to_judge_by():
    """0.0 and -0.0 are other bytes and no distance; float64's rounding is one."""
    assert judge_relation(relation(0.0, 1e-15), "float32") == Standing.UNDECIDED


def layered(own, promoted):
    """A relation whose logits agree to the byte and whose layers do not."""
    return Relation(
        relation="causality",
        case="3 tokens",
        holds=False,
        distance=Distance(n=8, n_differ=0, max_abs=0, mean_abs=0),
        promoted=Distance(n=8, n_differ=1, max_abs=1e-16, mean_abs=1e-17),
        layers=tuple(
            LayerDistance(
                name=f"layers.{i}",
                distance=distance(own * i),
                promoted=None if promoted is None else distance(promoted * i),
            )
            for i in range(3)
        ),
    )


@pytest.mark.parametrize(
    ("promoted", "stands"),
    [(1e-15, Standing.ROUNDING), (1e-7, Standing.BROKEN), (None, Standing.UNDECIDED)],
)
def test_layers_tell_where_the_logits_agree(promoted, stands):
    assert judge_relation(layered(1e-7, promoted), "float32") == stands


@pytest.mark.parametrize("size", [math.nan, math.inf, sys.float_info.max])
def test_what_is_not_finite_in_float64_is_broken(size):
    assert judge_relation(relation(1.0, size), "float32") == Standing.BROKEN
    assert judge_relation(relation(math.nan, size), "float32") == Standing.BROKEN


def test_an_overflow_that_float64_does_not_have_shrinks():
    assert judge_relation(relation(sys.float_info.max, 1e-15), "float16") == Standing.ROUNDING

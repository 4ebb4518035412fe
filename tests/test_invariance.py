import math
import sys

import pytest

from samebits.invariance import UNIT_ROUNDOFF, Standing, standing
from samebits.invariant import Distance, Relation
from samebits.words import DTYPES


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


THRESHOLDS = [("float32", 2.0**-14.5), ("float16", 2.0**-21), ("bfloat16", 2.0**-22.5)]
"""The geometric mean of what rounding leaves of a difference in float64, and of all of it."""


@pytest.mark.parametrize(("dtype", "threshold"), THRESHOLDS)
@pytest.mark.parametrize("size", [1e-7, 0.125, 3.4])
def test_both_sides_of_the_threshold(dtype, threshold, size):
    assert standing(relation(size, size * threshold), dtype) == Standing.SHRINKS
    above = math.nextafter(size * threshold, math.inf)
    assert standing(relation(size, above), dtype) == Standing.STAYS


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "float64"])
def test_both_outcomes_are_as_far_from_the_threshold(dtype):
    rounding = UNIT_ROUNDOFF["float64"] / UNIT_ROUNDOFF[dtype]
    for factor in (2.0**-6, 1.0, 2.0**6):
        assert standing(relation(0.5, 0.5 * rounding * factor), dtype) == Standing.SHRINKS
        assert standing(relation(0.5, 0.5 * factor), dtype) == Standing.STAYS


@pytest.mark.parametrize(
    ("own", "promoted", "stands"),
    [
        (7.9e-07, 1.6e-15, Standing.SHRINKS),
        (8.7e-03, 8.7e-03, Standing.STAYS),
        (7e-06, 7e-06, Standing.STAYS),
    ],
)
def test_the_cases_that_the_ladder_was_made_for(own, promoted, stands):
    assert standing(relation(own, promoted), "float32") == stands


def test_every_dtype_has_a_unit_roundoff():
    assert set(UNIT_ROUNDOFF) == set(DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_holds_holds_whatever_float64_says(dtype):
    assert standing(relation(0.0, 1.0, holds=True), dtype) == Standing.HOLDS
    assert standing(relation(None, None, holds=True), dtype) == Standing.HOLDS


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_float64_run_nothing_can_be_told(dtype):
    assert standing(relation(1.0, None), dtype) == Standing.UNKNOWN
    assert standing(relation(None, None), dtype) == Standing.UNKNOWN
    assert standing(relation(None, 1.0), dtype) == Standing.UNKNOWN


def test_float64_cannot_be_promoted():
    assert standing(relation(1e-15, 1e-15), "float64") == Standing.UNKNOWN


def test_a_difference_of_bytes_alone_is_not_broken():
    assert standing(relation(0.0, 0.0), "float32") == Standing.SHRINKS


def test_what_is_there_only_in_float64_is_broken():
    assert standing(relation(0.0, 1e-15), "float32") == Standing.STAYS


@pytest.mark.parametrize("size", [math.nan, math.inf, sys.float_info.max])
def test_what_is_not_finite_in_float64_is_broken(size):
    assert standing(relation(1.0, size), "float32") == Standing.STAYS
    assert standing(relation(math.nan, size), "float32") == Standing.STAYS


def test_an_overflow_that_float64_does_not_have_shrinks():
    assert standing(relation(sys.float_info.max, 1e-15), "float16") == Standing.SHRINKS

import math
import sys

import pytest

from samebits.invariance import KEPT, SHRUNK, Standing, standing
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


LOSSY = [dtype for dtype in DTYPES if dtype != "float64"]


@pytest.mark.parametrize("dtype", LOSSY)
@pytest.mark.parametrize("size", [1e-7, 0.125, 3.4])
def test_both_sides_of_each_threshold(dtype, size):
    assert standing(relation(size, size * SHRUNK), dtype) == Standing.SHRINKS
    above = math.nextafter(size * SHRUNK, math.inf)
    assert standing(relation(size, above), dtype) == Standing.UNKNOWN
    assert standing(relation(size, size * KEPT), dtype) == Standing.STAYS
    below = math.nextafter(size * KEPT, 0.0)
    assert standing(relation(size, below), dtype) == Standing.UNKNOWN


def test_what_was_seen_of_minimax_and_zamba2_is_not_called_broken():
    """Constants rounded at the start, and float32 states in a bfloat16 model."""
    assert standing(relation(3.8e-06, 9.0e-08), "float32") == Standing.UNKNOWN
    assert standing(relation(0.18, 1.2e-03), "bfloat16") == Standing.UNKNOWN
    assert standing(relation(1.1e-05, 6.7e-12), "bfloat16") == Standing.SHRINKS


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

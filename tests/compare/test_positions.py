"""Distances by position, and the tokens that logits choose."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.compare import positions
from samebits.compare.metrics import measure, row_mask
from samebits.compare.positions import MAX_POSITIONS, by_position


@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 3, 100]),
)
def test_it_is_the_largest_difference_of_each_position(batch, length, width, seed, chunk):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((batch, length, width)).astype(np.float32)
    b = np.where(rng.random(a.shape) < 0.5, a, a + np.float32(0.25))
    rows = row_mask([(0, int(rng.integers(1, length + 1))) for _ in range(batch)], a.shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions, "CHUNK", chunk)
        profile = by_position(a, b, rows)
    expected = [
        max(
            (
                abs(float(a[r, p, i]) - float(b[r, p, i]))
                for r in range(batch)
                for i in range(width)
                if rows[r, p]
            ),
            default=0.0,
        )
        for p in range(length)
    ]
    assert profile == pytest.approx(expected, rel=5e-3)


def test_elements_that_are_not_finite_do_not_count():
    a, b = np.zeros((1, 2, 2)), np.zeros((1, 2, 2))
    a[0, 0], b[0, 0] = (np.nan, 1.0), (0.0, 3.0)
    b[0, 1, 0] = np.inf
    assert by_position(a, b, None) == (2.0, 0.0)


@pytest.mark.parametrize(
    "shape", [(4,), (2, 4), (1, 2, 3, 4), (1, MAX_POSITIONS + 1, 2), (1, 0, 2)]
)
def test_other_shapes_and_long_prompts_have_none(shape):
    assert by_position(np.zeros(shape), np.ones(shape), None) == ()


def test_they_are_measured_where_they_are_asked_for_and_something_differs():
    a, b = np.zeros((1, 2, 2), np.float32), np.ones((1, 2, 2), np.float32)
    assert measure(a, b).by_position == ()
    assert measure(a, a, positions=True).by_position == ()
    assert measure(a, b, positions=True).by_position == (1.0, 1.0)


def test_the_first_position_that_chooses_another_token_has_the_tokens_of_both_sides():
    a = np.zeros((1, 3, 7), np.float32)
    b = a.copy()
    a[0, :, 4], b[0, :, 4] = 2, 2
    b[0, 1, 4] = 50  # another probability, the same choice
    b[0, 2, 6] = 3
    chosen = measure(a, b, logits=True, tokens={"6": " six"}).choices
    assert chosen.index == (0, 2)
    assert [token.id for token in chosen.reference] == [4, 0, 1, 2, 3]
    assert [(t.id, t.logit, t.text) for t in chosen.candidate][:2] == [
        (6, 3.0, " six"),
        (4, 2.0, None),
    ]
    json.dumps(chosen.model_dump(mode="json"), allow_nan=False)


def test_without_another_choice_it_is_the_position_with_the_largest_divergence():
    a = np.zeros((2, 2, 3), np.float32)
    a[..., 1] = 5
    b = a.copy()
    b[0, 1, 1], b[1, 0, 1] = 4.5, 3
    assert measure(a, b, logits=True).choices.index == (1, 0)
    rows = row_mask([(0, 2), (1, 2)], a.shape)
    assert measure(a, b, logits=True, rows=rows).choices.index == (0, 1), "padding chooses nothing"


def test_equal_probabilities_have_no_choices():
    a = np.zeros((1, 2, 3), np.float32)
    assert measure(a, a + 1, logits=True).choices is None
    assert measure(a, a + np.float32([0, 0, 1]), logits=False).choices is None

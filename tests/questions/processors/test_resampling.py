"""Seeded inputs, facts of arrays, and resampling in float64 against Pillow's bytes."""

import io
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from samebits_probe.questions.processors import arrays, resampling, samples

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("resample", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [(20, 31), (80, 71), (37, 20), (37, 53), (1, 1), (300, 9)])
def test_pillow_is_within_its_own_rounding_of_the_float64_result(resample, size):
    image = samples.picture(37, 53)
    stored = np.asarray(Image.fromarray(image).resize(size[::-1], resample=resample), np.float64)
    exact = resampling.resampled(image, size, resample)
    bound = resampling.rounding_of(image.shape[:2], size, resample)
    assert np.abs(stored - exact).max() <= bound
    assert bound < 2.5


@pytest.mark.parametrize(("asked", "other"), [(2, 3), (3, 2), (2, 5), (1, 3), (2, 0), (4, 2)])
def test_another_kernel_is_outside_of_that_rounding(asked, other):
    image = samples.picture(37, 53)
    stored = np.asarray(Image.fromarray(image).resize((31, 20), resample=asked), np.float64)
    exact = resampling.resampled(image, (20, 31), other)
    assert np.abs(stored - exact).max() > resampling.rounding_of((37, 53), (20, 31), other)


def test_a_png_is_read_as_the_pixels_that_it_was_made_of():
    image = samples.picture(9, 7)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(samples.png(image)))), image)


def test_samples_are_the_same_each_time():
    for name, made in (samples.arrays() | samples.pictures()).items():
        first, second = (
            (np.asarray(image) for image in (made(), made()))
            if (name != "two images")
            else (np.asarray(made()[0]), np.asarray(made()[0]))
        )
        assert np.array_equal(first, second), name
    assert samples.uniform(3, 4).tolist() == samples.uniform(3, 9)[:4].tolist()


def test_facts_of_an_array():
    facts = arrays.facts(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert (facts["dtype"], facts["shapes"], facts["n"]) == ("float32", [[2, 3]], 6)
    assert len(facts["projections"]) == arrays.N_PROJECTIONS
    assert facts["hash"] != arrays.facts(np.arange(6, dtype=np.float64).reshape(2, 3))["hash"]


def test_projections_measure_a_difference_anywhere():
    image = samples.picture(50, 40).astype(np.float64)
    moved = image.copy()
    moved[49, 39, 2] += 1.0
    pair = arrays.facts(image), arrays.facts(moved)
    squares = [
        (a - b) ** 2 for a, b in zip(pair[0]["projections"], pair[1]["projections"], strict=True)
    ]
    assert 0.05 < math.sqrt(3 * sum(squares) / len(squares)) < 2.0


def test_values_that_are_not_finite_are_counted():
    facts = arrays.facts(np.array([1.0, np.nan, np.inf]))
    assert (facts["n_special"], facts["n"]) == (2, 3)
    assert all(math.isfinite(value) for value in facts["projections"])

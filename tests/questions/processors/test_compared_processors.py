"""Outputs of processors on two sides: rounding, another function, or not decided."""

import numpy as np
import pytest

from samebits.questions.processors.compare import comparisons, distance
from samebits.questions.processors.records import ProcessorCase
from tests.support.processed import case, facts, signal, step

EXACT = np.random.default_rng(1).uniform(-1, 1, (3, 8, 8))
NATIVE = EXACT.astype(np.float32)
ROUNDED = np.nextafter(NATIVE, np.float32(2))
NOISE = np.random.default_rng(2).uniform(-1, 1, EXACT.shape)
OTHER = EXACT + 0.01 * NOISE


def difference(reference, candidate):
    (part,) = comparisons(signal({"c": reference}), signal({"c": candidate}))
    (only,) = part.differences
    return only


def test_equal_bytes_are_no_difference():
    (part,) = comparisons(signal({"c": case(NATIVE)}), signal({"c": case(NATIVE)}))
    assert (part.n_compared, part.differences) == (1, ())


def test_a_difference_that_vanishes_in_float64_is_rounding():
    only = difference(case(NATIVE, EXACT), case(ROUNDED, EXACT + 1e-16 * NOISE))
    assert only.outcome == "rounding"
    assert only.size > 0
    assert only.promoted_size < 1e-15


def test_one_level_of_255_is_rounding_if_float64_agrees():
    stored = NATIVE.copy()
    stored[0, 0, 0] += np.float32(1 / 255)
    assert difference(case(NATIVE, EXACT), case(stored, EXACT)).outcome == "rounding"


def test_a_difference_that_stays_in_float64_is_another_function():
    only = difference(case(NATIVE, EXACT), case(OTHER.astype(np.float32), OTHER))
    assert only.outcome == "other function"
    assert only.promoted_size == pytest.approx(only.size, rel=0.01)


def test_one_pixel_that_differs_in_float64_is_another_function():
    moved = EXACT.copy()
    moved[1, 2, 3] += 0.5
    only = difference(case(NATIVE, EXACT), case(moved.astype(np.float32), moved))
    assert only.outcome == "other function"


@pytest.mark.parametrize(
    ("reference", "candidate", "reason"),
    [
        (case(NATIVE), case(ROUNDED, EXACT), "it did not run in float64"),
        (case(NATIVE, EXACT), case(ROUNDED, EXACT, not_promoted="8 bits"), "8 bits"),
        (
            case(NATIVE, EXACT),
            case(ROUNDED, ROUNDED),
            "a step of the processor stays in a smaller float",
        ),
        (
            case(NATIVE, EXACT),
            case(ROUNDED, ROUNDED.astype(np.float64)),
            "it is as small as float32's rounding, and float64 does not remove it",
        ),
        (
            case(NATIVE, EXACT),
            case(OTHER.astype(np.float32), EXACT + 1e-4 * NOISE),
            "the difference shrinks in float64, but not as rounding does",
        ),
    ],
)
def test_nothing_is_concluded_without_a_run_in_float64(reference, candidate, reason):
    only = difference(reference, candidate)
    assert (only.outcome, only.reason) == ("undecided", reason)


def test_integers_are_not_rounded():
    mask = np.ones((2, 4), np.int64)
    other = mask.copy()
    other[0, 0] = 0
    assert difference(case(mask, mask), case(other, other)).outcome == "other function"


def test_shapes_dtypes_and_keys_are_another_form():
    assert difference(case(NATIVE), case(NATIVE[:2])).outcome == "other form"
    assert difference(case(NATIVE), case(EXACT)).outcome == "other form"
    (part,) = comparisons(signal({"c": case(NATIVE)}), signal({"c": case(NATIVE, key="pixels")}))
    assert [(d.output, d.outcome) for d in part.differences] == [
        ("pixel_values", "other form"),
        ("pixels", "other form"),
    ]


def test_only_one_side_that_raises_is_a_difference():
    raised = ProcessorCase(raised="ValueError", message="too small")
    only = difference(case(NATIVE), raised)
    assert (only.outcome, only.candidate) == ("raised", "raises ValueError: too small")
    other = ProcessorCase(raised="TypeError", message="not an image")
    (part,) = comparisons(signal({"c": raised}), signal({"c": other}))
    assert part.differences == ()


def with_option(base, optional):
    cases = {"c": case(base), "c, padding": case(optional, without="c")}
    return signal(cases, role="options")


def test_an_option_that_gives_the_values_of_another_form_their_form_again_is_not_accused():
    """Rows of another length are padded to one length."""
    ids, padded = np.arange(8), np.arange(8) % 5
    reference = with_option(ids, np.arange(8) % 7)
    (planted,) = comparisons(reference, with_option(ids, padded))[0].differences
    assert (planted.case, planted.outcome) == ("c, padding", "other function")
    assert comparisons(reference, with_option(ids[:6], padded))[0].differences == ()


def test_a_case_that_was_left_out_is_not_compared():
    left_out = ProcessorCase(left_out="ModuleNotFoundError: No module named 'PIL'")
    (part,) = comparisons(signal({"c": case(NATIVE)}), signal({"c": left_out}))
    assert (part.n_compared, part.differences) == (0, ())


def steps(resized, rescaled, settings="{}", input="x"):
    return (step("resize", resized, settings, input), step("rescale", rescaled))


def with_steps(own, promoted, taken, promoted_taken):
    return case(own, promoted, steps=taken, promoted_steps=promoted_taken)


LIKE_OTHER = OTHER.astype(np.float32)


def step_named(taken, promoted_taken, reference=None):
    """Return which step is named where the values of a case are others after these steps."""
    if reference is None:
        reference = with_steps(NATIVE, EXACT, steps(NATIVE, NATIVE), steps(EXACT, EXACT))
    return difference(reference, with_steps(LIKE_OTHER, OTHER, taken, promoted_taken)).step


def test_the_first_step_that_is_another_function_is_named_with_its_settings():
    bilinear, bicubic = '{"resample": 2, "size": 4}', '{"resample": 3, "size": 4}'
    reference = with_steps(NATIVE, EXACT, steps(NATIVE, NATIVE, bilinear), steps(EXACT, EXACT))
    taken = steps(LIKE_OTHER, LIKE_OTHER, bicubic)
    assert step_named(taken, steps(OTHER, OTHER), reference) == "resize (resample 2 → 3)"


def test_a_step_that_only_rounds_is_not_the_step_of_another_function():
    assert step_named(steps(ROUNDED, LIKE_OTHER), steps(EXACT, OTHER)) == "rescale"


def test_an_input_that_differs_already_is_no_defect_of_the_step():
    named = step_named(steps(OTHER, OTHER, input="y"), steps(OTHER, OTHER))
    assert named == "before resize, in how the image or sound is converted"
    taken = (step("resize", NATIVE), step("rescale", OTHER, input="y"))
    named = step_named(taken, (step("resize", EXACT), step("rescale", OTHER)))
    assert named == "between resize and rescale, in how the image or sound is converted"


def test_another_order_of_the_steps_is_named():
    taken = steps(NATIVE, NATIVE)
    named = step_named(taken[::-1], taken[::-1], with_steps(NATIVE, EXACT, taken, taken))
    assert named == "the order of the steps: resize, rescale → rescale, resize"


def test_settings_that_only_one_side_has_are_no_difference():
    reference = signal(settings={"size": "224", "resample": "2", "old": "true"})
    candidate = signal(settings={"size": "224", "resample": "3", "new": "true"})
    (part,) = comparisons(reference, candidate)
    assert part.settings == (("resample", "2", "3"),)


def test_class_backend_and_a_failed_load_are_compared():
    (part,) = comparisons(signal(), signal(class_name="ViTImageProcessorPil"))
    assert part.fields == (("class", "ViTImageProcessor", "ViTImageProcessorPil"),)
    (part,) = comparisons(signal(), signal(class_name="", raised="ValueError", message="no"))
    assert part.load == ("ViTImageProcessor", "ValueError: no")
    (part,) = comparisons(signal(class_name="", absent="a"), signal(class_name="", absent="b"))
    assert part.load is None


def test_the_distance_is_about_the_root_mean_square():
    many = np.random.default_rng(3).uniform(-1, 1, 20_000)
    moved = many + 0.1
    assert distance(facts(many), facts(moved)) == pytest.approx(0.1, rel=1.5)
    assert distance(facts(many), facts(many[:5])) is None

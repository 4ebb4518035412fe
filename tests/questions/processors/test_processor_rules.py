"""The rules for processors: planted differences and clean twins."""

import numpy as np
import pytest

from samebits.findings.case import Case
from samebits.questions.processors.records import ProcessorCase
from samebits.questions.registry import findings
from tests.support.asked import findings_of
from tests.support.builders import Memory, sound
from tests.support.processed import case, signal

EXACT = np.random.default_rng(1).uniform(-1, 1, (3, 8, 8))
NATIVE = EXACT.astype(np.float32)
ROUNDED = np.nextafter(NATIVE, np.float32(2))
OTHER = EXACT + 0.01 * np.random.default_rng(2).uniform(-1, 1, EXACT.shape)

PLAIN = signal({"c": case(NATIVE, EXACT)}, settings={"resample": "2"})
RAISED = ProcessorCase(raised="ValueError", message="too small")
PLANTED = {
    "SB831": signal({"c": case(NATIVE, EXACT)}, settings={"resample": "3"}),
    "SB832": signal({"c": case(NATIVE, EXACT)}, class_name="ViTImageProcessorPil"),
    "SB833": signal({"c": case(OTHER.astype(np.float32), OTHER)}),
    "SB834": signal({"c": case(ROUNDED, EXACT)}),
    "SB835": signal({"c": case(NATIVE[:2], EXACT[:2])}),
    "SB836": signal({"c": RAISED}),
    "SB837": signal(class_name="", backend="", raised="ImportError", message="no torchvision"),
    "SB839": signal({"c": case(ROUNDED)}),
}


def after(array, exact=None, **fields):
    """Return a signal of what is made of outputs of a model."""
    return signal(
        {"batch_decode": case(array, exact, key="result")},
        part="image processor, after the model",
        role="after",
        **fields,
    )


BASE, IN_CALL, LOADED = "picture", "picture, do_normalize=false", "picture, loaded"
ALIKE = OTHER.astype(np.float32)


def given(in_call=None, loaded=None, **base):
    """Return a signal of a call without an option, with it, and of an object that was loaded with it."""
    cases = {BASE: case(NATIVE, EXACT), **base}
    if in_call is not None:
        cases[IN_CALL] = in_call.model_copy(update={"without": BASE})
    if loaded is not None:
        of_load = {"without": BASE, "like": IN_CALL, "is_loaded": True}
        cases[LOADED] = loaded.model_copy(update=of_load)
    return signal(cases, part="image processor, with options", role="options")


WITH = case(ALIKE, OTHER)
WITHOUT = case(NATIVE, EXACT)
HONOURED = given(WITH, WITH)


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (HONOURED, HONOURED, set()),
        (HONOURED, given(WITHOUT), {"SB850"}),
        (given(WITHOUT), HONOURED, {"SB850"}),
        (given(WITHOUT), given(WITHOUT), set()),
        (HONOURED, given(RAISED, RAISED), {"SB836"}),
        (given(RAISED, RAISED), HONOURED, {"SB836"}),
        (given(RAISED, RAISED), given(RAISED, RAISED), set()),
        (HONOURED, given(case(NATIVE + 1, EXACT + 1)), {"SB833"}),
        (HONOURED, given(case(np.nextafter(ALIKE, np.float32(2)), OTHER)), {"SB834"}),
        (HONOURED, given(WITH, WITHOUT), {"SB859"}),
        (given(WITH, WITHOUT), given(WITH, WITHOUT), {"SB859"}),
        (given(WITH, WITHOUT), HONOURED, set()),
        (HONOURED, given(WITH, case(NATIVE + 1, EXACT + 1)), {"SB859"}),
        (HONOURED, given(WITH, RAISED), {"SB836"}),
        (HONOURED, given(WITH, case(np.nextafter(ALIKE, np.float32(2)))), set()),
    ],
)
def test_an_option_is_compared_with_the_call_without_it(reference, candidate, expected):
    assert codes(reference, candidate) == expected


def test_an_option_that_names_what_became_the_default_has_an_effect():
    """Both sides return the same with it, and one of them without it, too."""
    new = given(WITH, **{BASE: WITH})
    assert codes(given(WITH), new) == codes(new, given(WITH)) == set()


def test_what_differs_without_an_option_is_not_said_again_of_it():
    third = OTHER + 0.01 * np.random.default_rng(3).uniform(-1, 1, EXACT.shape)
    other = case(third.astype(np.float32), third)
    assert codes(HONOURED, given(other, **{BASE: other})) == {"SB850"}
    moved = case(third.astype(np.float32) + 1, third + 1)
    assert codes(given(WITH), given(moved, **{BASE: other})) == set()


def test_an_effect_as_small_as_rounding_is_none():
    nudged = case(ROUNDED, EXACT)
    assert codes(given(nudged), given(WITHOUT)) == {"SB834"}


def on_demand(**fields):
    return signal(
        {"c": case(NATIVE, EXACT)},
        part="image processor, torchvision on demand",
        role="on demand",
        **fields,
    )


def counts(array, **fields):
    """Return a signal of what is counted for a size alone."""
    return signal(
        {"an image of 480 x 360": case(array, key="num_image_tokens")},
        part="processor, counts",
        role="counts",
        **fields,
    )


LABELS = (NATIVE > 0).astype(np.int64)
FLIPPED = np.where(np.arange(LABELS.size).reshape(LABELS.shape) == 5, 1 - LABELS, LABELS)


def codes(reference, candidate):
    return findings_of("processors", reference, candidate).keys()


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_difference_is_named(code):
    assert codes(PLAIN, PLANTED[code]) == {code}


def test_a_processor_whose_tokenizer_is_slow_in_one_release_is_named():
    slow, fast = (
        signal(part="processor", settings={"tokenizer.is_fast": is_fast})
        for is_fast in ("false", "true")
    )
    assert codes(slow, fast) == codes(fast, slow) == {"SB897"}
    assert codes(fast, fast) == codes(fast, signal(part="processor")) == set()


@pytest.mark.parametrize("code", PLANTED)
def test_a_side_has_no_finding_against_itself(code):
    assert codes(PLANTED[code], PLANTED[code]) == set()


@pytest.mark.parametrize(
    ("fields", "is_named"),
    [
        ({"raised": "TypeError", "message": "unexpected keyword argument"}, True),
        (
            {
                "raised": "ImportError",
                "message": "SmolVLMProcessor requires num2words: pip install num2words",
            },
            False,
        ),
        ({"absent": "no torchvision"}, False),
    ],
)
def test_a_processor_that_only_the_reference_does_not_load_is_named_where_it_raises(
    fields, is_named
):
    """A package that it lacks is its environment's, not its release's."""
    side = signal(class_name="", backend="", **fields)
    assert "SB837" in codes(PLAIN, side)
    assert ("SB837" in codes(side, PLAIN)) is is_named
    assert "SB837" not in codes(side, side)


def sides_of(reference, candidate):
    """Return whether each finding accuses the reference, in the order in which they are shown."""
    case = Case(
        capture=sound(Memory(), "5.x", processors=candidate),
        reference=sound(Memory(), "4.48", processors=reference),
    )
    return [finding.of_reference for finding in findings(case)]


def test_an_input_that_one_side_alone_refuses_is_named_at_that_side():
    both = signal({"c": case(NATIVE), "d": case(NATIVE)})
    refuses_c = signal({"c": RAISED, "d": case(NATIVE)})
    refuses_d = signal({"c": case(NATIVE), "d": RAISED})
    assert codes(refuses_c, both) == codes(both, refuses_c) == {"SB836"}
    assert sides_of(refuses_c, both) == [True]
    assert sides_of(both, refuses_c) == [False]
    assert sides_of(refuses_c, refuses_d) == [False, True]
    assert codes(refuses_c, refuses_c) == set()
    # an input that both refuse shows nothing of either
    assert sides_of(signal({"c": RAISED, "d": RAISED}), refuses_d) == [True]


def test_a_model_without_processors_has_no_finding():
    assert codes(None, PLAIN) == set()
    assert codes(PLAIN, None) == set()


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (after(NATIVE, EXACT), set()),
        (after(OTHER.astype(np.float32), OTHER), {"SB838"}),
        (after(NATIVE[:2], EXACT[:2]), {"SB838"}),
        (after(ROUNDED, EXACT), {"SB834"}),
    ],
)
def test_what_is_made_of_outputs_has_a_rule_of_its_own(candidate, expected):
    assert codes(after(NATIVE, EXACT), candidate) == expected


def test_another_number_of_tokens_for_a_size_has_a_rule_of_its_own():
    few, many = counts(np.array([256])), counts(np.array([257]))
    assert codes(few, many) == {"SB830"}
    assert codes(few, few) == codes(few, counts(np.array([256]), class_name="Other")) == set()
    raises = signal({"an image of 480 x 360": RAISED}, part="processor, counts", role="counts")
    assert codes(few, raises) == {"SB830"}
    assert codes(raises, few) == {"SB830"}
    assert sides_of(raises, few) == [True]
    # a release without the method has no such part
    assert codes(few, PLAIN) == codes(PLAIN, few) == set()


def test_labels_that_agree_in_float64_differ_by_rounding():
    assert codes(after(LABELS, LABELS), after(FLIPPED, LABELS)) == {"SB834"}
    assert codes(after(LABELS, LABELS), after(FLIPPED, FLIPPED)) == {"SB838"}


def test_a_backend_that_only_one_release_has_is_no_finding():
    missing = signal(
        part="image processor, torchvision on demand",
        role="on demand",
        class_name="",
        backend="",
        absent="no class",
    )
    assert codes(on_demand(), missing) == set()
    assert codes(on_demand(), on_demand(class_name="Other", settings={"size": "1"})) == set()


def test_a_backend_on_demand_that_computes_otherwise_is_named():
    other = signal(
        {"c": case(OTHER.astype(np.float32), OTHER)},
        part="image processor, torchvision on demand",
        role="on demand",
    )
    assert codes(on_demand(), other) == {"SB833"}


COUNT, RAISES = (
    "_get_num_multimodal_tokens, an image of 97 x 64",
    ProcessorCase(raised="AttributeError", message="no such method"),
)


def counted(method, written, key="num_image_tokens"):
    """Return a signal of what a method gives for a size, and of what a call writes."""
    of_method = method if isinstance(method, ProcessorCase) else case(np.array([method]), key=key)
    made = (
        written
        if isinstance(written, ProcessorCase)
        else case(np.array(written), key="number", counted=COUNT)
    )
    cases = {COUNT: of_method, "the call, an image of 97 x 64": made}
    return signal(cases, part="processor, counts", role="counts")


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (counted(12, 12), set()),
        (counted(16, 12), {"SB866"}),
        (counted(RAISES, 12), {"SB866"}),
        (counted(16, ProcessorCase(raised="ValueError", counted=COUNT)), set()),
        (counted(16, ProcessorCase(left_out="no token is marked", counted=COUNT)), set()),
        (counted(16, 12, key="num_image_patches"), set()),
    ],
)
def test_a_method_counts_the_tokens_that_the_call_of_its_release_writes(side, expected):
    assert codes(side, side) == expected


def test_what_calls_write_is_no_count_of_a_method():
    """Two releases whose methods agree are compared by the outputs of their calls elsewhere."""
    assert codes(counted(12, 12), counted(12, 16)) == {"SB866"}
    assert codes(counted(16, 12), counted(16, 16)) == set()


def test_an_option_that_is_set_on_the_object_is_compared_with_the_call():
    def of(on_object):
        base = {"without": BASE, "is_loaded": True, "like": IN_CALL}
        cases = {BASE: WITHOUT, IN_CALL: WITH.model_copy(update={"without": BASE})}
        cases[f"{IN_CALL} set on the object"] = on_object.model_copy(update=base)
        return signal(cases, part="image processor, with options", role="options")

    assert codes(of(WITH), of(WITHOUT)) == {"SB859"}
    assert codes(of(WITHOUT), of(WITH)) == set()


def test_a_change_in_place_that_reaches_another_object_is_named():
    def of(after):
        apart = {"without": BASE, "is_loaded": True, "like": BASE}
        cases = {BASE: WITHOUT, "picture, after a change": after.model_copy(update=apart)}
        return signal(cases, part="image processor, with options", role="options")

    rounded = case(np.nextafter(NATIVE, np.float32(2)), EXACT)
    assert codes(of(WITHOUT), of(WITH)) == {"SB884"}
    assert codes(of(WITH), of(WITHOUT)) == codes(of(WITHOUT), of(rounded)) == set()
    assert codes(of(WITHOUT), of(RAISED)) == {"SB836"}


NEEDS = "ImportError: Package `num2words` is required. Install it with `pip install num2words`."


def needed(signal):
    return findings_of("processors", signal, signal)


def test_a_processor_that_needs_a_package_is_named_with_its_command():
    found = needed(signal(class_name="", backend="", absent=NEEDS))
    assert found.keys() == {"SB885"}
    assert found["SB885"].where == "num2words"
    assert found["SB885"].evidence[-1] == "with it: samebits check --package num2words"
    left_out = signal({"c": case(NATIVE, EXACT), "d": ProcessorCase(left_out=NEEDS)})
    assert needed(left_out).keys() == {"SB885"}
    assert needed(PLAIN) == {}
    other = signal({"c": case(NATIVE, EXACT), "d": ProcessorCase(left_out="it takes no video")})
    assert needed(other) == {}

"""SB217: values that two releases write otherwise."""

import pytest

from samebits.findings.case import Case
from samebits.questions.crossings.records import Crossing, CrossingsOfRow
from samebits.questions.registry import findings
from samebits.records.capture import Failure
from samebits.records.provenance import IntegritySignal
from samebits.records.written import Written
from tests.support.builders import Memory, sound, tokenizer

CONFIG = "config.json"


def written(keys, file=CONFIG, lost=None):
    files = {file: {"digest": str(keys), "keys": keys}}
    return Written.model_validate({"files": files, "lost": lost or {}})


def run(stack, keys, loaded=None, stated=None, lost=None):
    """Return a run that saved these keys of config.json."""
    return sound(
        Memory(),
        stack,
        integrity=IntegritySignal(poison="seen", written=written(keys, lost=lost)),
        config=loaded or {},
        config_use={key: {"written": value} for key, value in (stated or {}).items()},
    )


def found(before, after, **shared):
    """Return where, the evidence, and whether the reference is accused."""
    return of(run("4.57", before, **shared), run("5.x", after, **shared))


def of(reference, candidate):
    case = Case(capture=candidate, reference=reference)
    return [(f.where, *f.evidence, f.of_reference) for f in findings(case) if f.code == "SB217"]


def test_another_value_of_a_stated_key_accuses_the_release_that_does_not_write_it():
    line = "vocab_size: 4.57 writes {}, 5.x writes {}"
    states = {"stated": {"vocab_size": 99}}
    assert found({"vocab_size": "99"}, {"vocab_size": "100"}, **states) == [
        (CONFIG, line.format(99, 100), False)
    ]
    assert found({"vocab_size": "98"}, {"vocab_size": "99"}, **states) == [
        (CONFIG, line.format(98, 99), True)
    ]


def test_another_value_of_a_key_that_both_loaded_alike_is_found():
    infinity = '[0.0, {"__float__": "Infinity"}]'
    both = {"loaded": {"time_step_limit": [0.0, float("inf")]}}
    assert found({"time_step_limit": "[0.0, Infinity]"}, {"time_step_limit": infinity}, **both)


@pytest.mark.parametrize("other", [None, "[0.0, 5.0]"])
def test_an_infinity_that_another_release_cannot_read_is_named_once(other):
    """SB204 names it where a load showed it; another number is another value all the same."""
    infinity = other or '[0.0, {"__float__": "Infinity"}]'
    loaded = {"time_step_limit": [0.0, float("inf")]}
    sides = [
        run(stack, {"time_step_limit": text}, loaded)
        for stack, text in (("4.57", "[0.0, Infinity]"), ("5.x", infinity))
    ]
    message = "clamp() received an invalid combination of arguments - got (Tensor, float, dict)"
    failure = Failure(phase="forward", type="TypeError", message=message, traceback="")

    def named(loader, capture, reference):
        crossing = Crossing(saver="5.x", loader=loader, outcome="load failed", failure=failure)
        answers = {"crossings": CrossingsOfRow(crossings=(crossing,))}
        case = Case(capture=capture, reference=reference, answers=answers)
        return [f.code for f in findings(case) if f.code in ("SB204", "SB217")]

    of_value = ["SB217"] if other else []
    assert named("4.57", sides[0], None) == ["SB204"]
    assert named("4.57", sides[1], sides[0]) == of_value
    assert named("5.x", sides[1], sides[0]) == ["SB217"]  # nothing else says it


def test_of_long_values_no_hash_is_shown():
    long = "[1, 2\N{HORIZONTAL ELLIPSIS} {}"
    states = {"loaded": {"a": [1]}}
    ((_, line, _),) = found({"a": long.format("0a1b")}, {"a": long.format("2c3d")}, **states)
    assert line == "a: 4.57 writes [1, 2…, 5.x writes the same beginning and another end ([1, 2…)"
    ((_, line, _),) = found({"a": long.format("0a1b")}, {"a": "7"}, **states)
    assert line == "a: 4.57 writes [1, 2…, 5.x writes 7"


def test_a_key_that_the_candidate_alone_writes_is_compared_with_what_was_loaded():
    both = {"loaded": {"part": {"width": 8}}}
    assert found({}, {"part.width": "9"}, **both) == [
        (CONFIG, "part.width: 5.x loads 8 and writes 9", False)
    ]
    assert not found({}, {"part.width": "8"}, **both)
    assert not found({}, {"part.width": "9"}, loaded={"part": {}})
    # of a long value only its beginning is known
    assert not found({}, {"part.width": "[1, 2\N{HORIZONTAL ELLIPSIS} 0a1b"}, **both)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": "1"}, {"a": "1.0"}),
        ({"torch_dtype": '"float32"'}, {"dtype": '"float32"'}),
        ({"rope_theta": "10.0"}, {"rope_parameters.rope_theta": "10.0"}),
        ({"rope_scaling.type": '"linear"'}, {"rope_parameters.rope_type": '"linear"'}),
        (
            {"text.rope_theta": "10.0"},
            {"text.rope_parameters.a.rope_theta": "10.0", "text.rope_parameters.b.rope_theta": "1"},
        ),
        ({"head_dim": "null"}, {"head_dim": "128"}),
        ({"a": "{}"}, {"a": "[1]"}),
        ({"vision.model_type": '"a"'}, {"vision.model_type": '"a_vision"'}),
        ({"gone": "3"}, {}),
        ({}, {"new": "3"}),
    ],
)
def test_a_new_name_a_filled_value_and_a_new_field_are_no_other_value(before, after):
    stated = {"a": 1, "rope_theta": 10.0, "torch_dtype": "float32", "gone": 3}
    assert not found(before, after, stated=stated)


def test_another_value_under_the_new_name_is_found():
    states = {"stated": {"rope_theta": 10.0}}
    found_lines = found({"rope_theta": "10.0"}, {"rope_parameters.rope_theta": "20.0"}, **states)
    assert "5.x writes 20.0 as rope_parameters.rope_theta" in found_lines[0][1]


def test_a_default_that_moved_is_another_finding():
    sides = (
        run("4.57", {"cut": "4"}, loaded={"cut": 4}),
        run("5.x", {"cut": "5"}, loaded={"cut": 5}),
    )
    assert not of(*sides)


def test_what_a_release_loses_by_itself_is_another_finding():
    lost = {CONFIG: {"tied": ("false", "true")}}
    sides = (
        run("4.57", {"tied": "false"}, stated={"tied": False}),
        run("5.x", {"tied": "true"}, stated={"tied": False}, lost=lost),
    )
    assert not of(*sides)
    case = Case(capture=sides[1], reference=sides[0])
    assert "SB208" in [finding.code for finding in findings(case)]


def test_a_saved_tokenizer_config_has_its_values_compared_too():
    def side(stack, **keys):
        saved = written(keys, "tokenizer_config.json")
        return sound(Memory(), stack, tokenizer=tokenizer(written=saved))

    reference = side("4.57", do_lower_case="true", tokenizer_class='"BertTokenizerFast"')
    new = side("5.x", do_lower_case="false", tokenizer_class='"BertTokenizer"')
    line = "do_lower_case: 4.57 writes true, 5.x writes false"
    assert of(reference, new) == [("tokenizer_config.json", line, False)]
    assert not of(reference, reference)

"""Two outcomes compared: what counts as the same input, the first difference, and its position."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from samebits_probe.cell import outcomes as probe

from samebits.questions.texts.compare import (
    FOLLOWS,
    GROUPS,
    compared,
    differing_stages,
    position_in_words,
    texts_of,
    visible,
)
from samebits.questions.texts.records import BLOCK, Outcomes, Place, TextsSignal
from tests.support.outcomes import outcomes

ENCODED = {"encode": {"a": [1, 2]}, "encode without special tokens": {"a": [2]}}


def first(reference, candidate, operation="x"):
    (comparison,) = (c for c in compared(reference, candidate) if c.operation == operation)
    return comparison.first


def of(result, **fields):
    return outcomes({"x": {"a": result}}, **fields)


def recorded(result):
    """Return what a probe records of a result, as the host reads it."""
    asked = probe.Outcomes(10)
    asked.call("x", "a", lambda: result)
    return Outcomes.model_validate_json(json.dumps(asked.record()))


def test_both_sides_know_the_same_block():
    assert probe.BLOCK == BLOCK


@pytest.mark.parametrize(
    ("reference", "candidate", "position", "shown"),
    [
        ("abc", "abd", (2,), ('"abc"', '"abd"')),
        ("ab", "abc", (2,), ('"ab"', '"abc"')),
        ("a b", "a\N{NO-BREAK SPACE}b", (1,), ('"a b"', '"a\\xa0b"')),
        ([1, 2], [1, 3], (1,), ("2", "3")),
        ([1, 2], [1], (1,), ("2", "ends after 1")),
        ([[1, 2], [3, 4]], [[1, 2], [3, 5]], (1, 1), ("4", "5")),
        ([None, 1], [None, None], (1,), ("1", "null")),
        ("a", ValueError("no"), (), ('"a"', "raises ValueError: no")),
    ],
)
def test_the_first_position_that_differs_is_named(reference, candidate, position, shown):
    place = first(of(reference), of(candidate))
    assert place.position == position
    assert (place.reference, place.candidate) == shown


def test_tokens_are_named_only_where_numbers_are_ids():
    tokens = {5: "a"}
    sides = [outcomes({"encode": {"a": [i]}}, tokens=tokens) for i in (5, 6)]
    assert first(*sides, "encode").reference == '5 "a"'
    sides = [outcomes({"word ids": {"a": [i]}}, tokens=tokens) for i in (5, 6)]
    assert first(*sides, "word ids").reference == "5"


def test_exceptions_of_any_type_and_message_are_the_same():
    assert first(of(ValueError("a")), of(TypeError("b"))) is None


def test_a_case_with_another_input_is_not_compared():
    sides = [of([i], inputs={"a": text}) for i, text in ((1, "<s>"), (2, "<bos>"))]
    (comparison,) = compared(*sides)
    assert (comparison.n_compared, comparison.first) == (0, None)


@pytest.mark.parametrize("size", [63, 64, 65, 200, 1000])
def test_what_a_probe_records_differs_exactly_where_the_results_do(size):
    for make in (
        lambda i: [7] * i + [8] + [7] * (size - i),
        lambda i: "a" * i + "b" + "a" * (size - i),
    ):
        assert compared(recorded(make(0)), recorded(make(0)))[0].n_differ == 0
        for index in (0, 1, size // 2, size - 1):
            place = first(recorded(make(index)), recorded(make(size)))
            (start,) = place.position
            assert start <= index < start + place.span


def test_what_is_kept_as_a_hash_is_not_shown_as_an_end():
    sides = [recorded([7] * 100 + [i]) for i in (1, 2)]
    assert first(*sides).reference == "101 in all, of which these are kept as a hash"


def test_a_result_that_only_goes_on_is_another_one():
    for size in (10, 64, 256, 300, 320):
        for unit in ("a", [1]):
            place = first(recorded(unit * size), recorded(unit * (size + 1)))
            assert place is not None
            assert place.position[0] <= size < place.position[0] + max(place.span, 1)


def test_a_lone_surrogate_survives_the_way_through_a_file():
    assert recorded("a\ud83db").value("x", "a").text == "a\\ud83db"


def test_equal_results_are_stored_once():
    asked = probe.Outcomes(10)
    for case in "abc":
        asked.call("x", case, lambda: [1, 2])
    record = asked.record()
    assert (len(record["values"]), record["operations"]["x"]) == (1, {"a": 0, "b": 0, "c": 0})


def test_an_operation_that_a_release_does_not_have_is_left_out():
    def refuse(error):
        raise error

    asked = probe.Outcomes(10)
    asked.call("x", "a", lambda: 1)
    asked.call("x", "b", refuse, NotImplementedError("not in Python"))
    asked.call("y", "a", refuse, TypeError("f() got an unexpected keyword argument 'z'"))
    asked.call("z", "a", refuse, ValueError("a fact"))
    record = asked.record()
    assert set(record["left_out"]) == {"x", "y"}
    assert set(record["operations"]) == {"z"}
    assert record["values"][record["operations"]["z"]["a"]] == {
        "raised": "ValueError",
        "message": "a fact",
    }


def test_a_panic_of_an_extension_is_a_fact_and_an_interrupt_is_none():
    def stop(error):
        raise error

    panic = type("PanicException", (BaseException,), {})
    asked = probe.Outcomes(10)
    asked.call("x", "a", stop, panic("index out of bounds"))
    assert asked.record()["values"][0]["raised"] == "PanicException"
    with pytest.raises(KeyboardInterrupt):
        asked.call("x", "b", stop, KeyboardInterrupt())


def test_calls_after_the_limit_are_left_out():
    asked = probe.Outcomes(-1)
    assert asked.call("x", "a", lambda: 1) is None
    assert list(asked.record()["left_out"]) == ["x"]


SHARED_WORK = {"normalizer": {"a": "x", "b": "y"}, "pre_tokenizer": {"a": ["x"]}}
"""The normalizer gives something else for two texts, and the pieces differ for one of them."""


@pytest.mark.parametrize(
    ("changed", "parts", "stages"),
    [
        ({"model": {"a": [9]}}, "model", "model"),
        ({"pre_tokenizer": {"a": ["x"]}, "model": {"a": [9]}}, "pre_tokenizer", "pre_tokenizer"),
        ({"pre_tokenizer": {"a": ["x"]}, "model": {"a": [9]}}, "added_tokens", ""),
        ({"normalizer": {"a": "x"}, "pre_tokenizer": {"a": ["x"]}}, "normalizer", "normalizer"),
        (SHARED_WORK, "normalizer pre_tokenizer", "pre_tokenizer normalizer"),
        (SHARED_WORK, "normalizer", "normalizer"),
        ({}, "normalizer", ""),
    ],
)
def test_the_stage_that_differs_is_the_first_that_is_not_made_up_for(changed, parts, stages):
    plain = {
        "normalizer": {"a": "a", "b": "b"},
        "pre_tokenizer": {"a": ["a"], "b": ["b"]},
        "model": {"a": [1], "b": [2]},
    }
    other = {name: cases | changed.get(name, {}) for name, cases in plain.items()}
    sides = outcomes(plain), outcomes(other)
    assert differing_stages("a", *sides, parts.split()) == tuple(stages.split())


def test_every_operation_of_a_group_is_known_and_every_follower_is_in_one():
    names = {name for group in GROUPS.values() for name in group}
    assert set(FOLLOWS) <= names


def test_each_stack_is_compared_with_the_reference():
    signals = {name: TextsSignal(corpus=outcomes(ENCODED)) for name in ("4.48", "5.x")}
    assert list(texts_of(signals, "5.x")) == ["4.48"]
    assert texts_of(signals, "9").keys() == {"5.x"}
    assert texts_of({"5.x": TextsSignal()}, "5.x") == {}
    assert texts_of({"4.48": TextsSignal(), "5.x": TextsSignal()}, "4.48") == {}


def test_a_list_of_words_is_compared_only_if_all_texts_agree():
    sides = [
        TextsSignal(corpus=outcomes({**ENCODED, "words": {"w": [i]}, "encode": {"a": [j]}}))
        for i, j in ((1, 1), (2, 2))
    ]
    (report,) = texts_of(dict(zip(("a", "b"), sides, strict=True)), "a").values()
    assert "words" not in {c.operation for c in report.operations}


@pytest.mark.parametrize(
    ("position", "span", "words"),
    [
        ((), 1, "case"),
        ((3,), 1, "case, index 3"),
        ((1, 2), 1, "case, row 1, index 2"),
        ((64,), 64, "case, between index 64 and 127"),
    ],
)
def test_a_position_in_words(position, span, words):
    place = Place(case="case", position=position, span=span, reference="", candidate="")
    assert position_in_words(place) == words


def test_what_cannot_be_seen_is_escaped():
    assert visible('a\tb\u200de\u0301\U0001f600"') == '"a\\tb\\u200de\\u0301\U0001f600\\""'

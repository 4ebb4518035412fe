"""generate() is accused only of what follows from its own logic."""

import pytest

from samebits.questions.usage import compare as generation
from samebits.questions.usage.generation import GenerationSignal, GenerationWay, ProcessorScores


def way(*tokens, scores="abc", **fields):
    return GenerationWay(tokens=tokens, scores=tuple(scores), **fields)


GREEDY = way((9, 1, 2, 3))


def signal(config=None, processors=None, prompt="p", **ways):
    ways = {"greedy": GREEDY} | ways
    return GenerationSignal(
        prompt=prompt, config=config or {}, ways=ways, processors=processors or {}
    )


def names(compare, reference, candidate):
    return [other.name for other in compare(reference, candidate)]


def chosen(reference, candidate, name="beams"):
    return names(generation.choices, signal(**{name: reference}), signal(**{name: candidate}))


def test_other_tokens_from_the_same_logits_are_a_difference():
    beams = way((9, 1, 2), scores="", values=(-1.0,))
    assert chosen(beams, beams) == []
    assert chosen(beams, way((9, 1, 7), scores="", values=(-1.5,))) == ["beams"]


def test_beams_whose_sums_are_equal_but_for_rounding_are_a_tie():
    beams = way((9, 1, 2), scores="", values=(-1.0,))
    tie = way((9, 1, 7), scores="", values=(-1.0000001,))
    assert chosen(beams, tie) == []


def test_other_sums_of_the_same_tokens_are_a_difference_beyond_rounding():
    sides = [way((9, 1), scores="", values=(value,)) for value in (-1.0, -1.0001, -1.2)]
    assert chosen(sides[0], sides[1]) == []
    assert chosen(sides[0], sides[2]) == ["beams, sequences_scores"]


def test_other_scores_count_as_far_as_the_tokens_are_the_same():
    assert chosen(way((9, 1, 2, 3)), way((9, 1, 2, 3), scores="abX")) == ["beams"]
    drawn, other = way((9, 1, 2, 3), drew=True), way((9, 4, 2, 3), scores="aXY", drew=True)
    assert chosen(drawn, other, "sampling") == []
    assert chosen(drawn, way((9, 4, 2, 3), scores="XXY", drew=True), "sampling") == ["sampling"]


def test_drafts_that_check_other_numbers_of_tokens_are_left_out():
    draft = way((9, 1, 2), scores="", fed=((1, 3), (1, 2)))
    assert chosen(draft, way((9, 1, 7), scores="", fed=((1, 4), (1, 2)))) == []
    assert chosen(draft, way((9, 1, 7), scores="", fed=((1, 3), (1, 2)))) == ["beams"]


def test_ways_with_other_end_tokens_or_another_prompt_are_not_compared():
    assert chosen(way((9, 1), end=1, scores=""), way((9, 2), end=2, scores="")) == []
    sides = signal(beams=way((9, 1), scores="")), signal("", beams=way((9, 2), scores=""))
    other = sides[1].model_copy(update={"prompt": "q"})
    assert names(generation.choices, sides[0], other) == []


def test_what_follows_from_another_default_is_not_counted_again():
    beams = way((9, 1), scores=""), way((9, 2), scores="")
    for field, expected in (("forced_eos_token_id", []), ("eos_token_id", ["beams"])):
        reference = signal({field: 2}, beams=beams[0], defaults=beams[0])
        candidate = signal(beams=beams[1], defaults=beams[1])
        assert names(generation.defaults, reference, candidate) == [field]
        assert names(generation.choices, reference, candidate) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"temperature": 0.5}, {}, []),
        ({"temperature": 0.5, "do_sample": True}, {"do_sample": True}, ["temperature"]),
        ({"early_stopping": True}, {}, []),
        ({"early_stopping": True, "num_beams": 2}, {"num_beams": 2}, ["early_stopping"]),
        ({"eos_token_id": [2]}, {"eos_token_id": 2}, []),
        ({"top_k": 50, "max_length": 20, "is_assistant": False}, {}, []),
    ],
)
def test_a_default_counts_if_it_has_an_effect(first, second, expected):
    assert names(generation.defaults, signal(first), signal(second)) == expected


def test_a_refusal_is_a_difference_only_where_greedy_works():
    refused = GenerationWay(refused="ValueError: no")
    sides = signal(beams=GREEDY), signal(beams=refused)
    assert names(generation.refusals, *sides) == ["beams"]
    assert names(generation.refusals, *reversed(sides)) == []
    assert names(generation.choices, *sides) == []
    assert names(generation.refusals, sides[0], signal(beams=refused, greedy=refused)) == []


def test_processors_of_both_sides_are_compared():
    plain, other = ProcessorScores(scores="a"), ProcessorScores(scores="b")
    refused = ProcessorScores(refused="TypeError: no")

    def compared(first, second):
        return names(generation.processors, signal(None, first), signal(None, second))

    assert compared({"A": plain}, {"A": plain}) == []
    assert compared({"A": plain}, {"A": other}) == ["A"]
    assert compared({"A": plain}, {"A": refused}) == ["A"]
    assert compared({"A": refused}, {"A": plain}) == []
    assert compared({"A": plain}, {}) == []

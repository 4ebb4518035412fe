"""Programs of two releases: what contradicts a forward, what one release cannot make, what only rounds."""

import pytest

from samebits.questions.exports.compare import differences
from samebits.questions.exports.records import ExportsSignal, Program
from samebits.questions.exports.section import SECTION
from tests.support.asked import findings_of, report_of

SAME = {"own": 0.0, "others": 0.0}
ROUNDS = {
    "own": 1e-6,
    "others": 1e-6,
    "own_in_float64": 1e-15,
    "others_in_float64": 2e-15,
    "of_inputs": 0.9,
}
SKIPS = {
    "own": 0.0,
    "others": 0.7,
    "own_in_float64": 0.0,
    "others_in_float64": 0.7,
    "of_inputs": 0.9,
}
OTHER = {
    "own": 0.7,
    "others": 0.7,
    "own_in_float64": 0.7,
    "others_in_float64": 0.7,
    "of_inputs": 0.9,
}
RAISES = {"refused": "RuntimeError: unordered_map::at (at transformers/masking_utils.py:142 in m)"}
RAISES_LATER = {"own": 0.0, "refused": "RuntimeError: shape '[3]' is invalid"}


def signal(program, way="torch.export"):
    return ExportsSignal.model_validate({"programs": {way: {"short": program}}})


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        (SAME, "the same numbers"),
        (ROUNDS, "rounding"),
        (SKIPS, "other numbers"),
        (OTHER, "other numbers"),
        (RAISES, "raises"),
        (RAISES_LATER, "raises"),
        # a program that cannot be made in float64 leaves it open
        ({"own": 0.7, "others": 0.7}, "undecided"),
        # a part that computes in float32 leaves a remainder in float64
        (ROUNDS | {"own_in_float64": 5e-7, "others_in_float64": 9e-7}, "rounding"),
        (SKIPS | {"of_inputs": 0.0}, "undecided"),
        ({"left_out": "forward gives other numbers each time"}, "undecided"),
        # the first distance counts, even if the next run raises
        (RAISES_LATER | {"own": 0.7, "own_in_float64": 0.7, "of_inputs": 0.9}, "other numbers"),
    ],
)
def test_what_came_of_a_program(facts, outcome):
    assert Program.model_validate(facts).outcome == outcome


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        (SAME, SAME, False),
        (SAME, ROUNDS, False),
        (SAME, RAISES, True),
        (RAISES, SAME, True),
        (RAISES, RAISES_LATER, False),
        (SAME, SKIPS, True),
        (RAISES, {"left_out": "forward gives other numbers each time"}, False),
        (OTHER, SKIPS, False),
    ],
)
def test_only_what_works_on_one_side_differs(before, after, differs):
    assert [*map(bool, differences(signal(before), signal(after)))] == [True] * differs


def test_nothing_is_said_of_a_way_or_a_prompt_that_one_side_did_not_try():
    assert not [*differences(signal(SAME), signal(RAISES, "torch.jit.trace"))]


def test_programs_are_sorted_so_that_the_first_one_is_always_the_same():
    prompts = [f"prompt {number}" for number in range(9)]
    sides = (
        ExportsSignal.model_validate(
            {"programs": {"torch.export": dict.fromkeys(prompts, program)}}
        )
        for program in (SAME, RAISES)
    )
    assert [each.prompt for each in differences(*sides)] == prompts


def codes(before, after):
    return findings_of("exports", signal(before), signal(after))


def test_a_program_that_contradicts_its_forward_is_named_without_another_release():
    (finding,) = codes(SKIPS, SKIPS).values()
    assert finding.code == "SB935"
    assert finding.where == "torch.export"
    assert finding.evidence == (
        "short: on other inputs with the same shapes it differs from forward by up to 7.0e-01, in float64 by 7.0e-01",
    )


def test_a_program_of_one_release_names_the_release_that_raises():
    raised = codes(SAME, RAISES)["SB936"]
    assert raised.raises == "5.x"
    assert raised.evidence == ("4.48: computes the same", f"5.x: raises {RAISES['refused']}")
    assert codes(RAISES, SAME)["SB936"].raises == "4.48"
    later = codes(SAME, RAISES_LATER)["SB936"]
    assert later.evidence[1].startswith(
        "5.x: is made, and on other inputs with the same shapes raises RuntimeError"
    )


def test_sound_programs_and_those_that_no_release_makes_are_no_finding():
    for before, after in ((SAME, SAME), (SAME, ROUNDS), (RAISES, RAISES), (RAISES, RAISES_LATER)):
        assert not codes(before, after)


def test_the_page_names_a_program_once_for_all_models():
    report = report_of("exports", signal(SAME), signal(RAISES))
    page = SECTION.of_run(report)
    assert "torch.export of short" in page
    assert "unordered_map" in page
    assert not SECTION.of_run(report_of("exports", signal(SAME), signal(SAME)))

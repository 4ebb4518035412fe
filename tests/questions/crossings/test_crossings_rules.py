"""Rules for what does not come back, each with a planted and a clean case."""

import pytest

from samebits.findings.case import Case
from samebits.questions.crossings.records import Crossing, CrossingsOfRow
from samebits.questions.registry import findings
from samebits.records.capture import Failure
from tests.support.builders import Memory, sound


def crossing(**changed):
    facts = {"saver": "5.x", "loader": "4.48", "outcome": "differs"} | changed
    return Crossing(**facts)


def crossed_into(*crossings):
    answers = {"crossings": CrossingsOfRow(crossings=crossings)}
    return Case(capture=sound(Memory()), answers=answers)


def crossed(*crossings):
    return [finding.code for finding in findings(crossed_into(*crossings))]


def test_a_finding_about_a_save_names_the_stack_that_saved():
    (finding,) = findings(crossed_into(crossing(config=("hidden_act: a → b",))))
    assert (finding.saver, finding.of_saving) == ("5.x", True)


def of_files(**files):
    """Return the findings of 5.x against 4.57, which wrote these files."""
    names = {"reference": "4.57", "candidate": "5.x"}
    answer = CrossingsOfRow(crossings=(), files={names[side]: of for side, of in files.items()})
    sides = [sound(Memory(), stack=stack) for stack in ("4.57", "5.x")]
    return [*findings(Case(capture=sides[1], reference=sides[0], answers={"crossings": answer}))]


def test_files_that_one_release_writes_are_a_finding():
    before = ("config.json", "vocab.json")
    (finding,) = of_files(reference=before, candidate=("chat_template.jinja", "config.json"))
    assert (finding.code, finding.of_saving) == ("SB210", True)
    assert finding.evidence == ("4.57: writes vocab.json", "5.x: writes chat_template.jinja")
    (finding,) = of_files(reference=before, candidate=("config.json",))
    assert finding.evidence == ("4.57: writes vocab.json", "5.x: writes no file of its own")


def test_the_same_files_are_no_finding_nor_those_of_a_save_that_failed():
    assert of_files(reference=("config.json",), candidate=("config.json",)) == []
    assert of_files(reference=("config.json", "vocab.json")) == []


def test_rope_settings_lost_between_releases_are_a_finding():
    lost = crossing(config=("rope_parameters.rope_theta: 500000.0 → 10000.0",), logits_max_abs=1.2)
    assert crossed(lost) == ["SB203"]
    assert crossed(crossing(config=("hidden_act: a → b",))) == ["SB207"]
    assert crossed(crossing(config=("text_config.europe_theta: a → b",))) == ["SB207"]
    assert crossed(lost.model_copy(update={"outcome": "same bits"})) == []
    assert crossed(lost.model_copy(update={"saver": "4.48"})) == []


@pytest.mark.parametrize(
    "field",
    [
        "global_rope_theta: 5.0 → 1.0",
        "rotary_pct: 0.5 → 0.25",
        "rope_scaling: a → b",
        "llm_config.rope_theta: 5.0 → 1.0",
        "text_config.rotary_pct: 0.5 → 0.25",
    ],
)
def test_rope_settings_of_any_name_and_of_a_forward_that_fails_are_rope(field):
    assert crossed(crossing(config=(field,))) == ["SB203"]
    assert crossed(crossing(config=(field,), outcome="forward failed")) == ["SB203"]


def test_missing_keys_beside_lost_rope_settings_are_told_as_well():
    lost = crossing(config=("rope_theta: 5.0 → 1.0",), keys=("missing model.x",))
    assert crossed(lost) == ["SB203", "SB207"]


def test_a_save_that_failed_is_no_finding_of_the_loaders():
    failure = Failure(phase="save", type="RuntimeError", message="shared", traceback="")
    assert crossed(crossing(outcome="save failed", failure=failure)) == []
    died = failure.model_copy(update={"phase": "process"})
    assert crossed(crossing(outcome="load failed", failure=died)) == []
    assert crossed(crossing(outcome="load failed", failure=failure)) == ["SB207"]


def test_logits_that_came_back_are_not_called_different():
    field = crossing(config=("reference_compile: false → not there",), logits="same bits")
    case = crossed_into(field.model_copy(update={"logits_max_abs": 0}))
    (finding,) = findings(case)
    assert "the logits have the same bits" in finding.evidence
    assert not any("differ by" in line for line in finding.evidence)


def test_an_infinity_written_as_a_dict_is_a_finding():
    message = "clamp() received an invalid combination of arguments - got (Tensor, float, dict)"
    failure = Failure(phase="forward", type="TypeError", message=message, traceback="")
    assert crossed(crossing(outcome="load failed", failure=failure)) == ["SB204"]
    unknown = failure.model_copy(update={"message": "something else"})
    assert crossed(crossing(outcome="load failed", failure=unknown)) == ["SB207"]


def test_a_changed_tie_is_a_finding_of_its_own():
    changed = crossing(config=("tie_word_embeddings: false → true",), tensors=("lm_head.weight",))
    assert crossed(changed) == ["SB206"]


@pytest.mark.parametrize("outcome", ["same bits", "absent", "not tried"])
def test_a_crossing_that_loses_nothing_is_no_finding(outcome):
    assert crossed(crossing(outcome=outcome)) == []


def test_a_stack_has_no_finding_for_what_another_one_loads():
    assert crossed(crossing(loader="5.0")) == []

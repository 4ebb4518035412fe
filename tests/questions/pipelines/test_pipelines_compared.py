"""Answers of pipelines on two sides: what is accused, what rounds, and what only follows the model."""

import pytest

from samebits.findings.case import Case
from samebits.questions.pipelines import QUESTION
from samebits.questions.pipelines.compare import report
from samebits.questions.pipelines.records import PIPELINES, PipelinesSignal
from samebits.questions.pipelines.section import of_model, of_run, pipelines_differ
from samebits.questions.registry import findings
from samebits.records.capture import Failure
from tests.support.asked import findings_of
from tests.support.builders import Memory, sound
from tests.support.sample_report import same_everywhere, sample_report

IDS = {"dtype": "int64", "shape": (1, 4), "hash": "aa"}


def answer(label="POSITIVE", score=0.75, **more):
    """Return the answer of a classifier; ``more`` are further fields that must be equal."""
    fields = {
        "length": {"exact": "1"},
        "[0].label": {"exact": f'"{label}"'},
        "[0].score": {"exact": "number", "numbers": [float(score).hex()]},
    }
    return {"fields": fields | {name: {"exact": value} for name, value in more.items()}}


def called(own=None, given=None, exact=None, fed=None):
    """Return one call; without more, all three answers are the same."""
    own = own or answer()
    return {
        "own": own,
        "fed": {"input_ids": IDS} if fed is None else fed,
        "given": given or own,
        "exact": exact or given or own,
    }


def signal(case=None, *, name="text-classification", **task):
    cases = {"a text": case} if case is not None else {}
    return PipelinesSignal.model_validate(
        {"tasks": {name: {"dtype": "float32", "cases": cases, **task}}}
    )


def compared(before, after):
    return [(each.outcome, each.field) for each in report("4.48", before, after).differences]


def outcomes(before, after):
    return compared(signal(before), signal(after))


def codes_of(before, after):
    return findings_of("pipelines", before, after)


CLEAN = called()
NEAR = 0.75 + 2.0**-24


def test_equal_answers_do_not_differ():
    assert outcomes(CLEAN, called()) == []
    assert not codes_of(signal(CLEAN), signal(called()))


@pytest.mark.parametrize(
    ("after", "field"),
    [
        (answer("NEGATIVE"), "[0].label"),
        (answer(score=0.5), "[0].score"),
        (answer(extra="1"), "extra"),
    ],
    ids=["label", "score", "key"],
)
def test_another_answer_to_the_same_outputs_is_accused_and_its_field_named(after, field):
    changed = called(given=after)
    assert outcomes(CLEAN, changed) == [("other answer", field)]
    found = codes_of(signal(CLEAN), signal(changed))
    assert found.keys() == {"SB862"}
    assert field in found["SB862"].where
    assert any(
        "POSITIVE" in line or "0.75" in line or "absent" in line for line in found["SB862"].evidence
    )


@pytest.mark.parametrize(
    ("given", "exact", "outcome"),
    [
        (answer(score=NEAR), answer(), "rounding"),
        (answer(score=NEAR), answer(score=0.75 + 2.0**-53), "rounding"),
        # a step in float32 behind the model: the run in float64 shows nothing
        (answer(score=NEAR), answer(score=NEAR), "undecided"),
        (answer("NEGATIVE"), answer(), "rounding"),
    ],
    ids=["gone", "shrinks", "stays in float32", "a label flips"],
)
def test_what_float64_says(given, exact, outcome):
    changed = called(given=given, exact=exact)
    assert [each for each, _ in outcomes(CLEAN, changed)] == [outcome]
    assert not codes_of(signal(CLEAN), signal(changed))


def test_a_pixel_that_float64_does_not_confirm_is_not_accused():
    before, after = answer(box="31"), answer(box="32")
    assert outcomes(called(before), called(before, given=after)) == [("undecided", "box")]
    # a score that no float32 holds shows that the answer was made in float64
    real = [answer(score=0.1, box=box) for box in ("31", "32")]
    pair = called(before, exact=real[0]), called(before, given=after, exact=real[1])
    assert outcomes(*pair) == [("other answer", "box")]


def test_an_answer_that_differs_with_the_models_outputs_is_not_the_pipelines():
    changed = called(own=answer("NEGATIVE", 0.1), given=answer(), exact=answer())
    assert outcomes(CLEAN, changed) == [("follows", "[0].label")]
    assert not codes_of(signal(CLEAN), signal(changed))


def test_other_ids_are_accused_if_the_answer_differs():
    other = {"input_ids": IDS | {"hash": "bb"}}
    same = called(fed=other)
    assert outcomes(CLEAN, same) == []
    changed = called(own=answer("NEGATIVE"), given=answer(), exact=answer(), fed=other)
    assert outcomes(CLEAN, changed) == [("other input", "input_ids")]
    assert codes_of(signal(CLEAN), signal(changed)).keys() == {"SB863"}


def test_values_of_images_are_the_processors_affair():
    fed = [
        {"pixel_values": {"dtype": "float32", "shape": (1, 3, 8, 8), "hash": digest}}
        for digest in "ab"
    ]
    changed = called(own=answer("NEGATIVE"), given=answer(), exact=answer(), fed=fed[1])
    assert outcomes(called(fed=fed[0]), changed) == [("follows", "[0].label")]


def test_scores_of_a_model_in_another_dtype_are_not_compared():
    other = {"input_ids": IDS | {"hash": "bb"}}
    changed = called(own=answer(score=0.5), given=answer(), exact=answer(), fed=other)
    assert compared(signal(CLEAN), signal(changed, dtype="bfloat16")) == [("follows", "[0].score")]


@pytest.mark.parametrize("here", [True, False])
def test_what_one_side_raises_is_accused_with_its_line(here):
    at = "transformers/pipelines/base.py:12"
    raising = signal({"own": {"raised": "TypeError: no", "at": at}})
    sides = (signal(CLEAN), raising) if here else (raising, signal(CLEAN))
    (found,) = codes_of(*sides).values()
    assert found.code == "SB861"
    assert found.raises == ("5.x" if here else "4.48")
    assert at in found.where
    assert not codes_of(raising, raising)


def test_a_pipeline_that_loads_on_one_side_only_is_accused():
    raising = signal(raised="ValueError: no", at="transformers/pipelines/base.py:3")
    assert codes_of(signal(CLEAN), raising).keys() == {"SB861"}


def test_a_task_that_the_release_removed_is_named():
    absent = signal(absent="KeyError: 'removed'", dtype="")
    found = codes_of(signal(CLEAN), absent)
    assert found.keys() == {"SB864"}
    assert not codes_of(absent, signal(CLEAN))
    assert not codes_of(signal(left_out="the checkpoint has no tokenizer"), absent)


def test_what_was_not_asked_is_not_compared():
    for other in (signal({"left_out": "no"}), signal(left_out="no"), signal(name="fill-mask")):
        assert compared(signal(CLEAN), other) == []
        assert compared(other, signal(CLEAN)) == []


def batch(task="text-generation", **alone):
    """Return a batch that is padded on the right, unless ``alone`` says else, and its prompts one by one."""
    own = {"fields": {"[0].text": {"exact": "'the dog'"}}}
    found = {"own": own, "padding": "right", "distance": 0.5, "in_float64": 0.5}
    together = called({"fields": {"[0].text": {"exact": "'the the'"}}})
    return signal(together | {"one_by_one": found | alone}, name=task)


@pytest.mark.parametrize("task", ["text-generation", "image-text-to-text"])
def test_prompts_that_go_on_behind_their_padding_are_named(task):
    (found,) = codes_of(batch(task, padding="left"), batch(task)).values()
    assert found.code == "SB865"
    assert found.where == f"pipeline('{task}'): a text"
    assert "by up to 0.5, and by 0.5 in float64" in found.evidence[0]
    assert found.evidence[1:] == ("[0].text: 'the the'", "one by one: 'the dog'")


@pytest.mark.parametrize(
    "clean",
    [
        {"distance": 0.0, "in_float64": None},
        {"padding": "left"},
        {"distance": 1e-6, "in_float64": 1e-15},
        {"in_float64": None},
        {"own": {"raised": "ValueError: no"}, "padding": "", "distance": None},
    ],
    ids=["the same", "padded on the left", "rounding", "not computed", "raised"],
)
def test_a_batch_of_which_the_padding_is_not_at_fault_is_not_accused(clean):
    assert not codes_of(batch(), batch(**clean))


def row(model, after):
    captures = {
        "4.48": sound(Memory(), "4.48", pipelines=signal(CLEAN)),
        "5.0": sound(Memory(), "5.0", pipelines=after),
    }
    answers = {PIPELINES.name: QUESTION.of_captures(captures, "4.48")}
    return same_everywhere(model, "float32").model_copy(update={"answers": answers})


def test_reports_show_what_differs_once_for_all_models():
    changed = signal(called(given=answer("NEGATIVE")))
    rows = [row("m", changed), row("n", changed), row("o", signal(CLEAN))]
    report = sample_report().model_copy(update={"rows": tuple(rows)})
    text = of_run(report)
    assert text.count("another answer") == 1
    assert "`m`, `n`" in text
    assert "NEGATIVE" in of_model(rows[:1], report)
    assert [pipelines_differ([each]) for each in rows] == [True, True, False]
    kept = rows[0].answers[PIPELINES.name].stacks["5.0"].tasks["text-classification"].cases
    assert [case.own.fields for case in kept.values()] == [{}]


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ({"a": called()}, "answers"),
        (
            {"a": called(), "b": {"own": {"raised": "ValueError: no"}}},
            "answers; 1 of 2 calls raise",
        ),
        ({"a": {"own": {"raised": "ImportError: no pandas"}}}, "each call raises ImportError"),
        ({"a": {"left_out": "the checkpoint has no chat template"}}, "answers"),
    ],
)
def test_a_task_of_which_each_call_raises_does_not_answer(cases, words):
    task = PipelinesSignal.model_validate({"tasks": {"t": {"cases": cases}}}).trimmed().tasks["t"]
    assert task.in_words == words


def test_without_a_task_that_was_asked_nothing_is_shown():
    left_out = signal(left_out="the checkpoint has no tokenizer")
    captures = {s: sound(Memory(), s, pipelines=left_out) for s in ("4.48", "5.0")}
    answers = {PIPELINES.name: QUESTION.of_captures(captures, "4.48")}
    one = same_everywhere("m", "float32").model_copy(update={"answers": answers})
    report = sample_report().model_copy(update={"rows": (one,)})
    assert not of_run(report)
    assert "not asked: the checkpoint has no tokenizer" in of_model([one], report)


def test_a_model_that_raises_by_itself_is_not_accused_again():
    raising = signal({"own": {"raised": "TypeError: no", "at": "transformers/a.py:1"}})
    failure = Failure(phase="forward", type="TypeError", message="no", traceback="")
    case = Case(
        capture=sound(Memory(), "5.x", pipelines=raising).model_copy(
            update={"failures": (failure,)}
        ),
        reference=sound(Memory(), "4.48", pipelines=signal(CLEAN)),
    )
    assert "SB861" not in {each.code for each in findings(case)}

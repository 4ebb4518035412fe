"""Findings of Trainer: each rule finds its defect and nothing else."""

from dataclasses import replace

import pytest

from samebits.questions.registry import findings
from samebits.questions.trainer.records import TrainerOfRow, TrainerReport
from tests.findings.test_findings import codes
from tests.questions.training.test_training_findings import case_of, trained

TRAINER_CHANGES = [
    ("SB851", {"subject": "argument", "name": "optim"}),
    ("SB852", {"subject": "order of rows", "is_cause": True}),
    ("SB853", {"subject": "learning rates", "is_cause": True}),
    ("SB855", {"subject": "rows received", "is_cause": True}),
    ("SB855", {"subject": "labels received", "is_cause": True}),
    ("SB855", {"subject": "num_items_in_batch", "is_cause": True}),
    ("SB856", {"subject": "optimizer", "name": "betas", "is_cause": True}),
    ("SB856", {"subject": "weight decay", "is_cause": True}),
    ("SB858", {"subject": "logged learning rates"}),
    ("SB858", {"subject": "rounding of the log"}),
    ("SB860", {"subject": "config of the model", "name": "use_cache"}),
    ("SB872", {"subject": "parameters of the optimizer"}),
    ("SB873", {"subject": "order of parameters", "name": "2 of 9 parameters"}),
    (None, {"subject": "optimizer", "name": "fused"}),
    (None, {"subject": "scheduler"}),
]


def by_trainer(standing="diverged", **changed):
    comparison = {"reference": "4.48", "standing": standing} | changed
    return {"comparison": comparison}


def case_of_trainer(report, *, relation=None, own=None):
    """Return a cell whose step agrees; ``relation`` is Trainer's, and ``own`` is one of the step."""
    same = {"standing": "identical", "items": [], "first": None}
    ways = {"relations": {"relations": [relation]}} if relation is not None else {}
    answer = TrainerOfRow(stacks={"5.x": TrainerReport.model_validate(report | ways)})
    case = case_of(trained(same, relation=own))
    return replace(case, answers={**case.answers, "trainer": answer})


def codes_of_trainer(report, **relations):
    return codes(case_of_trainer(report, **relations))


@pytest.mark.parametrize(("code", "change"), TRAINER_CHANGES)
def test_what_trainer_does_otherwise_is_named(code, change):
    change |= {"reference": "adamw_torch", "candidate": "adamw_torch_fused"}
    report = by_trainer(changes=[change])
    assert codes_of_trainer(report) == ([code] if code else [])


def test_what_changes_no_number_of_the_run_is_no_finding():
    for subject, expected in (
        ("num_items_in_batch", []),
        ("weight decay", []),
        ("order of rows", ["SB852"]),
    ):
        change = {"subject": subject, "reference": "a", "candidate": "b", "is_cause": True}
        report = by_trainer("rounding", changes=[change])
        assert codes_of_trainer(report) == expected


def test_a_changed_default_comes_with_the_argument_that_restores_it():
    for name, value, argument in (
        ("optim", "adamw_torch", "optim='adamw_torch'"),
        ("average_tokens_across_devices", "False", "average_tokens_across_devices=False"),
        ("learning_rate", "5e-05", "learning_rate=5e-05"),
    ):
        change = {"subject": "argument", "name": name, "reference": value, "candidate": "x"}
        report = by_trainer(changes=[change])
        (finding,) = findings(case_of_trainer(report))
        assert f"TrainingArguments({argument})" in finding.evidence[0]


SIZE = {"n": 1, "n_differ": 1, "max_abs": 1.0, "mean_abs": 1.0}
BROKEN_BY_TRAINER = {
    "relation": "Trainer: rows accumulated = one batch",
    "holds": False,
    "what": "a",
}
BROKEN_BY_TRAINER |= {"broken": True, "distance": SIZE, "promoted": SIZE}


def test_numbers_of_trainer_that_nothing_explains_are_named():
    item = {"signal": "weights", "run": "row by row", "place": "a", "outcome": "diverged"}
    report = by_trainer(first=item, items=[item])
    assert codes_of_trainer(report) == ["SB857"]
    cause = {"subject": "num_items_in_batch", "reference": "7", "candidate": "6", "is_cause": True}
    report = by_trainer(first=item, items=[item], changes=[cause])
    assert codes_of_trainer(report) == ["SB855"]
    report = by_trainer("follows", first=item, items=[item])
    assert codes_of_trainer(report) == []
    accumulated = item | {"run": "accumulated"}
    report = by_trainer(first=accumulated, items=[accumulated])
    assert codes_of_trainer(report) == ["SB857"]
    assert codes_of_trainer(report, relation=BROKEN_BY_TRAINER) == ["SB854"]
    of_the_reference = case_of_trainer(by_trainer(first=accumulated, items=[accumulated]))
    answer, relations = of_the_reference.answers["trainer"], {"relations": [BROKEN_BY_TRAINER]}
    broken = TrainerReport.model_validate({"relations": relations})
    stacks = {**answer.stacks, "4.48": broken}
    answers = {**of_the_reference.answers, "trainer": TrainerOfRow(stacks=stacks)}
    assert codes(replace(of_the_reference, answers=answers)) == []
    report = by_trainer("rounding", items=[item | {"outcome": "rounding"}])
    assert codes_of_trainer(report) == []


def test_accumulation_by_trainer_is_named_where_the_model_does_not_break_it_itself():
    by = BROKEN_BY_TRAINER
    own = by | {"relation": "rows accumulated = one batch"}
    assert codes_of_trainer({}, relation=by) == ["SB854"]
    assert codes_of_trainer({}, relation=by | {"broken": False}) == []
    assert codes_of_trainer({}, relation=by, own=own) == ["SB843"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("SB889", "Trainer with label smoothing: rows accumulated = one batch"),
        ("SB892", "Trainer: rows accumulated, and a rest = batches, and a rest"),
    ],
)
def test_accumulation_that_one_way_alone_breaks_is_named(code, name):
    by = BROKEN_BY_TRAINER | {"relation": name}
    assert codes_of_trainer({}, relation=by) == [code]
    assert codes_of_trainer({}, relation=by | {"broken": False}) == []
    own = by | {"relation": "rows accumulated = one batch"}
    assert codes_of_trainer({}, relation=by, own=own) == ["SB843"]


def test_a_resumed_training_that_goes_on_as_another_one_says_what_it_did_not_load():
    by = BROKEN_BY_TRAINER | {"relation": "Trainer: stopped and resumed = without a stop"}
    report = {"lost": ["a", "b", "c"]}
    (finding,) = findings(case_of_trainer(report, relation=by))
    assert (finding.code, finding.where) == ("SB888", "train(resume_from_checkpoint=…)")
    assert finding.evidence[0].startswith("a, b and 1 more: as before the training")
    (finding,) = findings(case_of_trainer({}, relation=by))
    assert len(finding.evidence) == 1, "moments, for example, are no tensor of the checkpoint"
    assert codes_of_trainer(report, relation=by | {"broken": False}) == []


@pytest.mark.parametrize(
    ("steps", "expected"), [([2], []), ([2, 4], []), ([4], ["SB891"]), ([], [])]
)
def test_a_training_that_ends_as_a_later_step_than_the_best_one_is_named(steps, expected):
    report = {"ends": {"steps": {"best": 2, "steps": [2]}, "best": {"best": 2, "steps": steps}}}
    assert codes_of_trainer(report) == expected
    if expected:
        (finding,) = findings(case_of_trainer(report))
        assert "save_strategy='best'" in finding.where


AUTO = "from_pretrained(device_map='auto')"


def test_a_model_that_is_other_where_it_is_placed_is_named():
    for broken, expected in (({}, []), ({"outputs": "logits has no values"}, ["SB893"])):
        report = {"placed": {AUTO: {"raised": {"": "", "forward": ""}, "broken": broken}}}
        assert codes_of_trainer(report) == expected
        if expected:
            (finding,) = findings(case_of_trainer(report))
            assert finding.where == AUTO
            assert finding.evidence[0].endswith(": logits has no values")


LOWER = {"signal": "evaluation loss", "outcome": "diverged", "reference": 2.5, "candidate": 2.25}


def of_evaluation(name):
    return {"subject": "evaluation", "name": name, "reference": "none", "candidate": "28"}


@pytest.mark.parametrize(
    ("expected", "standing", "loss", "name"),
    [
        (["SB874"], "identical", "diverged", None),
        (["SB874"], "identical", "diverged", "num_items_in_batch"),
        (["SB874"], "follows", "diverged", "num_items_in_batch"),
        (["SB874"], "identical", "identical", "predictions"),
        (["SB874"], "identical", "identical", "rows"),
        (["SB869"], "identical", "identical", "predict()"),
        ([], "follows", "diverged", None),
        ([], "identical", "rounding", "num_items_in_batch"),
        ([], "identical", "undecided", None),
        ([], "identical", "identical", "arguments"),
    ],
)
def test_an_evaluation_is_named_unless_the_forward_explains_it(expected, standing, loss, name):
    changes = [of_evaluation(name)] if name is not None else []
    report = by_trainer(standing, evaluation=LOWER | {"outcome": loss}, changes=changes)
    assert codes_of_trainer(report) == expected


def test_an_evaluation_that_diverged_makes_no_other_finding():
    """What the model ignores in training changes no number of a run, though the evaluation has another loss."""
    change = {"subject": "num_items_in_batch", "reference": "7", "candidate": "6", "is_cause": True}
    report = by_trainer("rounding", evaluation=LOWER, changes=[change])
    assert codes_of_trainer(report) == ["SB874"]


@pytest.mark.parametrize(
    ("sides", "raises"),
    [
        (("TypeError: no", "returns predictions"), "4.48"),
        (("returns predictions", "TypeError: no"), "5.x"),
    ],
)
def test_an_evaluation_that_raises_names_the_release_that_raises(sides, raises):
    change = of_evaluation("predict()") | {"reference": sides[0], "candidate": sides[1]}
    (finding,) = findings(case_of_trainer(by_trainer("identical", changes=[change])))
    assert (finding.code, finding.raises) == ("SB869", raises)

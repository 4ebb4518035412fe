"""Findings of training steps: each rule finds its defect and nothing else."""

import pytest

from samebits.findings.case import Case
from samebits.questions.registry import texts
from samebits.questions.training.records import TrainingOfRow, TrainingReport
from samebits.records.capture import Failure
from samebits.records.provenance import IntegritySignal, Provenance
from tests.findings.test_findings import codes
from tests.support.builders import Memory, sound

TRAINED = {
    "losses": {"padded": 2.5},
    "comparison": {
        "reference": "4.48",
        "standing": "diverged",
        "first": {"signal": "loss", "batch": "padded", "outcome": "diverged"},
        "items": [
            {
                "signal": "loss",
                "batch": "padded",
                "outcome": "diverged",
                "reference": 2.5,
                "candidate": 3.5,
                "own": 1.0,
                "float64": 1.0,
            }
        ],
    },
}


def trained(comparison=None, relation=None, **changed):
    """Return a training report with these changes of its comparison."""
    facts = TRAINED | {"comparison": TRAINED["comparison"] | (comparison or {})} | changed
    if relation is not None:
        facts["relations"] = {"relations": [relation]}
        facts["comparison"] = None
    return TrainingReport.model_validate(facts)


def case_of(step, run=None):
    return Case(
        capture=run or sound(Memory(), "5.x"),
        answers={"training": TrainingOfRow(stacks={"5.x": step})},
    )


def codes_of_training(*args, run=None, **changed):
    return codes(case_of(trained(*args, **changed), run))


def test_a_loss_that_diverged_by_itself_is_named():
    assert codes_of_training() == ["SB841"]
    assert codes_of_training({"standing": "follows"}) == []
    assert codes_of_training({"standing": "rounding", "items": []}) == []
    logits = {"signal": "logits", "batch": "padded", "outcome": "diverged"}
    items = [logits, *TRAINED["comparison"]["items"]]
    assert codes_of_training({"items": items, "first": logits}) == ["SB840"]
    other = TRAINED["comparison"]["items"][0] | {"formulas": ["mean", "sum"]}
    assert codes_of_training({"items": [logits, other], "first": logits}) == ["SB841"]


@pytest.mark.parametrize("standing", ["diverged", "follows"])
def test_a_loss_that_one_side_does_not_compute_is_no_consequence_of_other_logits(standing):
    logits = {"signal": "logits", "batch": "router", "outcome": "diverged"}
    refused = {"signal": "loss", "batch": "router", "outcome": "diverged", "note": "ValueError"}
    of_logits = ["SB840"] if standing == "diverged" else []
    comparison = {"standing": standing, "first": logits}
    assert codes_of_training(comparison | {"items": [logits, refused]}) == [*of_logits, "SB841"]
    unreturned = refused | {"signal": "other losses", "tensor": "z_loss", "reference": 2.0}
    assert codes_of_training(comparison | {"items": [logits, unreturned]}) == [*of_logits, "SB841"]
    other = unreturned | {"candidate": 2.5}
    assert codes_of_training(comparison | {"items": [logits, other]}) == of_logits
    rounded = {"standing": "rounding", "items": [], "first": None}
    assert codes_of_training(rounded) == []


def test_logits_of_a_step_that_diverged_by_themselves_are_named():
    loss = TRAINED["comparison"]["items"][0]
    logits = {"signal": "logits", "batch": "padded", "outcome": "diverged", "own": 0.5}
    gradients = {"signal": "gradients", "tensor": "a.weight", "outcome": "diverged"}
    change = {"items": [logits, loss, gradients], "first": logits}
    assert codes_of_training(change) == ["SB840"]
    assert codes_of_training({"items": [logits], "first": logits}) == ["SB840"]
    assert codes_of_training(change | {"standing": "follows"}) == []
    rounded = logits | {"outcome": "rounding"}
    assert codes_of_training({"standing": "rounding", "items": [rounded], "first": rounded}) == []
    same = {"standing": "identical", "items": [], "first": None}
    assert codes_of_training(same) == []


def test_gradients_that_diverged_by_themselves_are_named():
    item = {"signal": "gradients", "tensor": "a.weight", "outcome": "diverged", "note": "none"}
    assert codes_of_training({"items": [item], "first": item}) == ["SB842"]
    loss = TRAINED["comparison"]["items"][0]
    assert codes_of_training({"items": [loss, item], "first": loss}) == ["SB841"]
    norm = {"signal": "norm", "batch": "router", "outcome": "diverged"}
    assert codes_of_training({"items": [norm], "first": norm}) == ["SB842"]


def test_a_tensor_that_is_frozen_in_one_release_is_named_and_no_tie_is_blamed():
    frozen = {"signal": "gradients", "tensor": "positions.weight", "outcome": "diverged"}
    item, norm = frozen | {"frozen_in": "4.57"}, {"signal": "norm", "outcome": "diverged"}
    assert codes_of_training({"items": [item, norm], "first": item}) == ["SB849"]
    assert codes_of_training({"items": [frozen, norm], "first": frozen}) == ["SB842"]
    both = {"items": [item, frozen | {"tensor": "a.weight"}, norm], "first": item}
    assert codes_of_training(both) == ["SB842", "SB849"]
    (text,) = texts(["SB849"])
    assert "tie_weights" not in text.remedy


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("SB843", "rows accumulated = one batch"),
        ("SB844", "gradient checkpointing = without"),
        ("SB844", "gradient checkpointing, reentrant = without"),
        ("SB844", "gradient checkpointing with dropout = without"),
        ("SB845", "train() without dropout = eval()"),
        ("SB845", "logprobs of training = logprobs of decoding"),
        ("SB846", "packed = padded"),
        ("SB846", "router loss by config = by argument"),
        ("SB846", "decoder ids by collators = by forward"),
        ("SB846", "frozen layers leave other gradients"),
        ("SB846", "only projections learn = all learn"),
        ("SB844", "gradient checkpointing, only projections learn = without"),
        ("SB846", "eager backward = sdpa backward"),
        ("SB870", "ids of padding have no effect"),
        ("SB871", "packed = padded, with images"),
    ],
)
def test_a_way_to_train_that_is_broken_is_named(code, name):
    size = {"n": 1, "n_differ": 1, "max_abs": 1.0, "mean_abs": 1.0}
    relation = {"relation": name, "holds": False, "broken": True, "what": "loss"}
    relation |= {"distance": size, "promoted": size}
    assert codes_of_training(relation=relation) == [code]
    assert codes_of_training(relation=relation | {"broken": False}) == []
    missing = relation | {"distance": None, "promoted": None, "missing": ["a.weight"]}
    assert codes_of_training(relation=missing) == [code]


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("logprobs of training = logprobs of decoding", []),
        ("train() without dropout = eval()", ["SB845"]),
    ],
)
def test_decoding_without_its_cache_is_one_finding_in_training_code_too(name, beside):
    size = {"n": 1, "n_differ": 1, "max_abs": 1.0, "mean_abs": 1.0}
    relation = {"relation": name, "holds": False, "broken": True, "what": "logprobs"}
    relation |= {"distance": size, "promoted": size}
    message = "forward() got an unexpected keyword argument 'cache'"
    failure = Failure(phase="greedy short", type="TypeError", message=message, traceback="")
    run = sound(Memory(), "5.x").model_copy(update={"failures": (failure,)})
    assert codes_of_training(relation=relation, run=run) == ["SB713", *beside]


def test_a_higher_loss_of_unwritten_memory_is_named():
    run = sound(Memory(), "5.x", integrity=integrity_of("unwritten"))
    clean = sound(Memory(), "5.x", integrity=integrity_of("loaded"))
    higher = TRAINED["comparison"]["items"][0] | {"reference": 2.0, "candidate": 9.0}
    change = {"standing": "follows", "items": [higher]}
    assert "SB847" in codes_of_training(change, run=run)
    assert "SB847" not in codes_of_training(change, run=clean)
    equal = {"standing": "follows", "items": [higher | {"candidate": 2.1}]}
    assert "SB847" not in codes_of_training(equal, run=run)


def test_another_rule_of_accumulation_is_named():
    change = {"standing": "identical", "items": [], "first": None}
    assert codes_of_training(change | {"takes_items": [False, True]}) == ["SB848"]
    assert codes_of_training(change | {"takes_items": [True, False]}) == ["SB848"]
    assert codes_of_training(change) == []


def test_layers_that_adapters_leave_out_in_one_release_are_named():
    change = {"standing": "identical", "items": [], "first": None}
    assert codes_of_training(change | {"linear_in": {"4.48": ["a", "b"]}}) == ["SB886"]
    assert codes_of_training(change | {"linear_in": {}}) == []


def integrity_of(source):
    written = "none" if source == "unwritten" else "all"
    facts = Provenance(kind="non-persistent buffer", source=source, written=written)
    return IntegritySignal(poison="NaN", tensors={"rotary.inv_freq": facts})


def test_packed_rows_that_the_release_keeps_apart_are_no_defect_of_it():
    """The reference mixes them: its own finding says so."""
    logits = {"signal": "logits", "batch": "packed", "outcome": "diverged", "own": 10.0}
    padded = logits | {"batch": "padded"}
    apart = {"relation": "packed = padded", "holds": False, "broken": False}

    def of(items, *relations):
        comparison = {"items": items, "first": items[0]}
        step = trained(comparison, relations={"relations": relations} if relations else None)
        return codes(case_of(step))

    assert of([logits], apart) == []
    assert of([logits]) == ["SB840"]
    assert of([logits, padded], apart) == ["SB840"]
    assert of([logits], apart | {"broken": True}) == ["SB840", "SB846"]

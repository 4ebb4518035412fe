"""Two training steps are compared in the order of data flow, and float64 judges what differs."""

from math import nan

import numpy as np
import pytest

from samebits.questions.training.compare import compared
from samebits.questions.training.judge import MAX_OF_SIGNAL, needs_values
from samebits.questions.training.records import TrainingFile
from samebits.questions.training.report import report_of, with_forward
from samebits.records.capture import Failure
from samebits.records.comparison import SignalComparison
from samebits.records.ids import Verdict
from samebits.records.made import MadeModel
from tests.support.builders import Memory, cell_id, values

MADE = MadeModel(n_layers=2, hidden_size=32, n_parameters=1000)


class Judged:
    """A result with nothing but its verdict and the outcomes of its signals."""

    def __init__(self, judged, **outcomes):
        self.judged = judged
        self.signals = [
            SignalComparison(signal=name, outcome=outcome, n_items=1, n_differ=0)
            for name, outcome in outcomes.items()
        ]


def step(memory, *, seed=0, dtype=np.float32, logits=0.0, gradients=None, **changed):
    """Return a step; ``logits`` and ``gradients`` are added to its tensors."""
    base = {"a": values(2, 3, seed=1), "b": values(4, seed=2)}
    tensors = {name: array.astype(dtype) for name, array in base.items()}
    for name, change in (gradients or {}).items():
        tensors[name] = None if change is None else tensors[name] + dtype(change)
    batch = {
        "loss": changed.pop("loss", 2.5),
        "others": changed.pop("others", {}),
        "formula": changed.pop("formula", "mean over the labels, the next token"),
        "logits": memory.put((values(2, 5, seed=3) + dtype(logits)).astype(dtype)).model_dump(),
        "refused": "",
    }
    facts = {
        "batches": {"padded": batch | changed.pop("batch", {})},
        "gradients": {
            name: memory.put(array).model_dump()
            for name, array in tensors.items()
            if array is not None
        },
        "norm": 1.5,
        "behind": 2.25,
    }
    return facts | changed


def file(stack, own, high=None, **changed):
    return TrainingFile.model_validate(
        {"cell": cell_id(stack), "own": own, "float64": high} | changed
    )


def pair(change, high_change=None, *, both=None, **of_file):
    """Return the comparison of a plain step with a changed one, with their float64."""
    memory = Memory()
    both = both or {}
    plain, changed = step(memory, **both), step(memory, **(both | change))
    high = None
    if high_change is not None:
        high = (
            step(memory, dtype=np.float64, **both),
            step(memory, dtype=np.float64, **(both | high_change)),
        )
    reference = file("4.48", plain, high and high[0])
    candidate = file("5.x", changed, high and high[1], **of_file)
    return compared(reference, candidate, memory)


def test_the_same_step_is_identical():
    result = pair({})
    assert result.standing == "identical"
    assert result.first is None
    assert result.items == ()
    assert result.counts == {"identical": 6}


CHANGES = [
    ("logits", {"logits": 1e-3}, {"logits": 1e-12}, {"logits": 1e-3}),
    ("loss", {"loss": 2.6}, {"loss": 2.5 + 1e-12}, {"loss": 2.6}),
    ("norm", {"norm": 1.6}, {"norm": 1.5 + 1e-12}, {"norm": 1.6}),
    ("loss behind an update", {"behind": 2.3}, {"behind": 2.25 + 1e-12}, {"behind": 2.3}),
    (
        "gradients",
        {"gradients": {"b": 1e-3}},
        {"gradients": {"b": 1e-12}},
        {"gradients": {"b": 1e-3}},
    ),
]


@pytest.mark.parametrize(("signal", "change", "shrinks", "stays"), CHANGES)
def test_what_shrinks_is_rounding_and_what_stays_diverged(signal, change, shrinks, stays):
    without = pair(change)
    assert without.standing == "undecided"
    assert needs_values(without)
    rounding, diverged = pair(change, shrinks), pair(change, stays)
    assert rounding.standing == "rounding"
    assert not needs_values(rounding)
    assert diverged.standing == "diverged"
    assert (diverged.first.signal, diverged.first.outcome) == (signal, "diverged")


def test_the_first_in_data_flow_is_named():
    late = pair({"norm": 1.6, "loss": 2.6}, {"norm": 1.6, "loss": 2.6})
    assert late.first.signal == "loss"


def test_a_loss_that_is_no_number_diverged():
    result = pair({"loss": nan}, {"loss": nan})
    assert result.standing == "diverged"
    assert pair({"loss": nan}, {}, both={"loss": nan}).standing == "identical"


def test_another_formula_diverged_without_float64():
    result = pair({"loss": 2.6, "formula": "sum over the labels, the next token"})
    assert result.standing == "diverged"
    assert result.first.formulas[1] == "sum over the labels, the next token"


def test_a_gradient_that_is_missing_diverged():
    result = pair({"gradients": {"a": None}, "without": ["a"]})
    assert result.standing == "diverged"
    assert result.first.tensor == "a"
    assert "no gradient in 5.x" in result.first.note


def test_a_layout_that_is_not_traced_is_not_compared():
    result = pair({"gradients": {"a": None}})
    assert result.standing == "identical"
    assert result.counts["not compared"] == 1


def test_a_lost_tie_diverged():
    result = pair({"carriers": {"a": 2}})
    assert result.standing == "diverged"
    assert (result.first.signal, result.first.tensor) == ("gradients", "a")


def test_tensors_of_equal_bytes_are_not_accused():
    moved = pair({"gradients": {"b": 1.0}}, {"gradients": {"b": 1.0}}, uncertain=("b",))
    assert moved.standing == "identical"
    assert moved.counts["not compared"] == 1


def test_a_batch_that_only_the_candidate_refuses_diverged():
    refused = {"batch": {"loss": None, "logits": None, "refused": "TypeError: no"}}
    assert pair(refused).standing == "diverged"
    assert pair({}, both=refused).standing == "identical"


def of_sides(reference, candidate, **of_step):
    """Return the comparison of two steps whose batch has other fields, and their float64 the same ones."""
    memory = Memory()
    files = [
        file(stack, *(step(memory, batch=dict(batch), **of_step) for _ in range(2)))
        for stack, batch in (("4.48", reference), ("5.x", candidate))
    ]
    return compared(*files, memory)


def test_a_batch_that_only_the_reference_refuses_is_not_compared():
    refused = {"loss": None, "logits": None, "refused": "TypeError: no"}
    result = of_sides(refused, {})
    assert (result.standing, result.counts["not compared"]) == ("identical", 1)


@pytest.mark.parametrize(
    ("stacks", "outcome"),
    [(("4.48", "5.x"), "identical"), (("4.48",), "not compared"), (("5.x",), "not compared")],
)
def test_a_batch_that_one_release_does_not_take_is_named_with_it(stacks, outcome):
    memory, facts = Memory(), {stack: step(Memory()) for stack in ("4.48", "5.x")}
    for stack in stacks:
        facts[stack]["batches"]["second"] = facts[stack]["batches"]["padded"]
    result = compared(*(file(stack, facts[stack]) for stack in facts), memory)
    assert result.standing == "identical"
    assert result.counts.get("not compared", 0) == (outcome == "not compared")
    notes = [item.note for item in result.items if item.outcome == "not compared"]
    missing = {"4.48", "5.x"} - {*stacks}
    assert notes == [f"{stack} takes no such batch" for stack in missing]


@pytest.mark.parametrize(
    ("formulas", "standing"),
    [(("", "sum"), "identical"), (("sum", ""), "identical"), (("sum", "mean"), "diverged")],
)
def test_a_formula_that_is_not_known_accuses_nothing(formulas, standing):
    assert of_sides(*({"formula": formula} for formula in formulas)).standing == standing


LOGITS = values(2, 5, seed=3)


@pytest.mark.parametrize(
    ("sides", "standing", "note"),
    [
        ((LOGITS, None), "diverged", "only one side returns it"),
        ((None, LOGITS), "diverged", "only one side returns it"),
        ((None, None), "identical", "no side returns it"),
        ((LOGITS, LOGITS[:, :4]), "diverged", "shape [2, 5] became [2, 4]"),
        ((LOGITS, LOGITS), "identical", ""),
    ],
)
def test_logits_that_one_side_lacks_or_has_in_another_shape_diverged(sides, standing, note):
    memory = Memory()
    batches = [
        {"logits": None if side is None else memory.put(side).model_dump()} for side in sides
    ]
    result = of_sides(*batches)
    assert result.standing == standing
    assert [item.note for item in result.items if item.signal == "logits"] == [note] * bool(note)


@pytest.mark.parametrize(
    ("reference", "candidate", "high", "standing"),
    [
        ({"aux": 1.0}, {"aux": 1.0 + 1e-6}, {"aux": 1.0 + 1e-15}, "rounding"),
        ({"aux": 1.0}, {"aux": 2.0}, {"aux": 2.0}, "diverged"),
        ({"aux": 1.0}, {}, {}, "diverged"),
        ({}, {"aux": 1.0}, {"aux": 1.0}, "diverged"),
        ({"aux": 1.0}, {"aux": 1.0}, {"aux": 1.0}, "identical"),
    ],
)
def test_a_loss_beside_the_models_is_judged_by_its_own_float64(
    reference, candidate, high, standing
):
    result = pair({"others": candidate}, {"others": high}, both={"others": reference})
    assert result.standing == standing
    assert {item.tensor for item in result.items if item.signal == "other losses"} == (
        {"aux"} if standing != "identical" else set()
    )


@pytest.mark.parametrize("lacking", ["4.48", "5.x"])
def test_a_parameter_that_is_frozen_in_one_release_is_named_with_it(lacking):
    memory = Memory()
    frozen = step(memory, gradients={"a": None}, frozen=["a"], without=["a"])
    files = [file(stack, frozen if stack == lacking else step(memory)) for stack in ("4.48", "5.x")]
    result = compared(*files, memory)
    assert (result.standing, result.first.frozen_in) == ("diverged", lacking)


def test_a_step_that_raises_failed_and_both_are_not_compared():
    memory = Memory()
    failure = Failure(phase="training", type="TypeError", message="no", traceback="")
    good, bad = file("4.48", step(memory)), file("5.x", None, failure=failure)
    assert compared(good, bad, memory).standing == "failed"
    assert compared(bad, good, memory).standing == "not compared"
    both = compared(bad, bad, memory)
    assert both.standing == "not compared"
    assert both.reason == "not observed, as it raises the same in both releases: TypeError: no"
    other = failure.model_copy(update={"type": "ValueError"})
    worse = bad.model_copy(update={"failure": other})
    assert compared(bad, worse, memory).reason.endswith(
        "TypeError: no \N{RIGHTWARDS ARROW} ValueError: no"
    )
    assert (
        compared(file("4.48", None, reason="no labels"), good, memory).reason == "4.48: no labels"
    )


def test_made_models_with_other_weights_are_not_compared():
    memory = Memory()
    sides = [
        file(stack, step(memory), asked_of=MADE, weights=weights)
        for stack, weights in (("4.48", "x"), ("5.x", "y"))
    ]
    assert compared(*sides, memory).standing == "not compared"
    same = sides[1].model_copy(update={"weights": "x"})
    assert compared(sides[0], same, memory).standing == "identical"


def test_a_report_has_a_few_items_of_each_signal():
    memory = Memory()
    names = [f"t{i}" for i in range(20)]

    def many(shift):
        facts = step(memory)
        arrays = {name: values(3, seed=i) + np.float32(shift) for i, name in enumerate(names)}
        return facts | {"gradients": {n: memory.put(a).model_dump() for n, a in arrays.items()}}

    result = compared(file("4.48", many(0.0)), file("5.x", many(1.0)), memory)
    assert result.counts["undecided"] == 20
    assert len(result.items) == MAX_OF_SIGNAL


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [
        (Verdict.DIVERGED, "follows"),
        (Verdict.UNDECIDED, "follows"),
        (Verdict.IDENTICAL, "diverged"),
        (Verdict.ROUNDING, "diverged"),
    ],
)
def test_what_begins_in_the_forward_is_not_accused_again(verdict, standing):
    change = {"logits": 1e-3, "loss": 2.6}
    result = report_of(file("5.x", step(Memory())), pair(change, change))
    assert with_forward(result, Judged(verdict)).comparison.standing == standing


@pytest.mark.parametrize(
    ("judged", "outcomes", "standing"),
    [
        (Verdict.DIVERGED, {"logits": "identical", "decode": "differs"}, "diverged"),
        (Verdict.UNDECIDED, {"logits": "identical", "greedy": "differs"}, "diverged"),
        (Verdict.DIVERGED, {"logits": "differs", "decode": "differs"}, "follows"),
        (Verdict.DIVERGED, {"hidden_states": "differs", "logits": "identical"}, "follows"),
        (Verdict.DIVERGED, {"logits": "not compared", "decode": "differs"}, "follows"),
        (Verdict.UNSTABLE, {"logits": "identical"}, "follows"),
    ],
)
def test_a_verdict_that_rests_on_no_forward_explains_no_logits_of_a_step(
    judged, outcomes, standing
):
    change = {"logits": 1e-3, "loss": 2.6}
    result = report_of(file("5.x", step(Memory())), pair(change, change))
    assert with_forward(result, Judged(judged, **outcomes)).comparison.standing == standing


def test_another_formula_stays_accused_beside_another_forward():
    change = {"logits": 1e-3, "loss": 2.6, "formula": "sum over the labels, the next token"}
    result = report_of(file("5.x", step(Memory())), pair(change, change))
    assert with_forward(result, Judged(Verdict.DIVERGED)).comparison.standing == "diverged"


def test_a_gradient_that_differs_behind_an_equal_forward_stays_accused():
    change = {"gradients": {"a": 1e-3}}
    result = report_of(file("5.x", step(Memory())), pair(change, change))
    assert with_forward(result, Judged(Verdict.DIVERGED)).comparison.standing == "diverged"


@pytest.mark.parametrize(
    ("sides", "differ"),
    [((True, True), None), ((False, True), (False, True)), ((None, True), None)],
)
def test_another_rule_of_accumulation_is_recorded(sides, differ):
    memory = Memory()
    files = [
        file(stack, step(memory), takes_items=takes)
        for stack, takes in zip(("4.48", "5.x"), sides, strict=True)
    ]
    assert compared(*files, memory).takes_items == differ


def test_a_routers_loss_without_its_gradient_diverged():
    routed = {"batch": {"norm": 3.0}}
    change = {"batch": {"norm": 2.0}}
    diverged = pair(change, change, both=routed)
    assert diverged.standing == "diverged"
    assert (diverged.first.signal, diverged.first.batch) == ("norm", "padded")
    assert pair(change, {"batch": {"norm": 3.0 + 1e-12}}, both=routed).standing == "rounding"
    assert pair({}, both=routed).standing == "identical"


@pytest.mark.parametrize(
    ("linear", "uncertain", "alone"),
    [
        ((["a", "b"], ["a"]), [], {"4.48": ("b",)}),
        ((["a"], ["a", "b"]), [], {"5.x": ("b",)}),
        ((["a", "b"], ["a", "b"]), [], {}),
        ((["a", "old.name"], ["a", "new.name"]), [], {}),
        ((["a", "b"], ["a"]), ["b"], {}),
    ],
)
def test_a_tensor_that_is_of_a_linear_layer_on_one_side_alone_is_named(linear, uncertain, alone):
    """Names that only one side has are no evidence, nor are tensors of the same bytes."""
    memory = Memory()
    files = [
        file(stack, step(memory), linear=names, uncertain=uncertain)
        for stack, names in zip(("4.48", "5.x"), linear, strict=True)
    ]
    assert compared(*files, memory).linear_in == alone

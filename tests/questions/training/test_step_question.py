"""A pair whose step diverged by itself is traced, in the batch where it differs first."""

import pytest

from samebits.questions.training.records import TrainingComparison, TrainingFile, TrainingItem
from samebits.questions.training.step_question import question
from tests.support.builders import cell_id

LOSS = {"signal": "loss", "batch": "router", "outcome": "diverged"}
GRADIENT = {"signal": "gradients", "tensor": "a", "outcome": "diverged"}


def file(stack, batches=("padded", "router"), without=(), refused="", **changed):
    own = {
        "batches": {name: {"loss": 1.0} for name in batches},
        "gradients": {},
        "norm": 1.0,
        "behind": 1.0,
        "without": without,
    }
    own["batches"]["router"]["refused"] = refused
    return TrainingFile.model_validate({"cell": cell_id(stack), "own": own} | changed)


def asked(*items, standing="diverged", counts=None, reference=None, candidate=None):
    items = tuple(TrainingItem(**item) for item in items)
    first = next((item for item in items if item.outcome == standing), None)
    comparison = TrainingComparison(
        reference="4.48", standing=standing, first=first, items=items, counts=counts or {}
    )
    return question(comparison, reference or file("4.48"), candidate or file("5.x"))


def test_a_loss_is_traced_in_its_batch_and_without_a_backward():
    question = asked(LOSS, counts={"diverged": 1})
    assert (question.batch, question.backward, question.no_rounding) == ("router", False, True)
    assert question.reference == cell_id("4.48")
    assert question.in_loss


def test_a_gradient_is_traced_in_the_first_batch():
    candidate = file("5.x", without=("a",), uncertain=("b",))
    question = asked(GRADIENT, counts={"diverged": 1, "rounding": 2}, candidate=candidate)
    assert (question.batch, question.backward, question.no_rounding) == ("padded", True, False)
    assert not question.in_loss
    assert (question.without, question.skipped) == (frozenset("a"), frozenset("b"))


@pytest.mark.parametrize("standing", ["identical", "rounding", "undecided", "follows", "failed"])
def test_only_what_diverged_is_traced(standing):
    assert asked(LOSS | {"outcome": "rounding"}, standing=standing) == ""


def test_a_loss_behind_other_logits_is_not_traced():
    logits = LOSS | {"signal": "logits"}
    formula = LOSS | {"formulas": ("mean", "sum")}
    assert asked(logits, formula).batch == "router"
    assert "the logits differ already" in asked(formula, logits)


def test_a_batch_that_raises_is_not_traced():
    assert asked(LOSS, candidate=file("5.x", refused="TypeError: no")) == ""

"""Two traced training steps: the first operation whose output one side has alone is named."""

import base64

import numpy as np
import pytest

from samebits.questions.training.origin import NOTHING, origin
from samebits.questions.training.step_question import StepQuestion
from samebits.questions.training.step_trace import StepTrace
from samebits.records.capture import Failure
from samebits.records.ids import CellId, Variant
from tests.support.traces import Builder


def cell(stack):
    return CellId(model="m", variant=Variant(dtype="float32", attention="default"), stack=stack)


QUESTION = StepQuestion(
    cell("old"), "padded", True, frozenset(), frozenset(), in_loss=False, no_rounding=True
)


class Step(Builder):
    """A training step: an embedding, logits, a loss and its way back."""

    def __init__(self, stack="old"):
        super().__init__(stack)
        self.belongs = {}
        self.source("x", "input_ids", dtype="int64", structural=True)
        self.source("y", "labels", dtype="int64", structural=True)
        self.source("w", "embed.weight")

    def forward(self, logits="l", loss="loss", labels="y", name="nll_loss_forward.default"):
        self.op("embedding.default", "w x", "e").op("mm.default", "e w", logits)
        self.mark("logits", logits)
        self.op(name, f"{logits} {labels}", loss, module="head", line=20)
        return self.mark("loss", loss)

    def back(self, name, inputs, outputs, node="MmBackward0", of="mm.default", **facts):
        self.belongs[len(self.ops)] = (node, of)
        return self.op(name, inputs, outputs, **facts)

    def head(self, gradient="dw1", name="mm.default", **facts):
        """Go back through the loss and the head."""
        self.back("nll_loss_backward.default", "loss y", "dl", "NllLossBackward0")
        return self.back(name, "dl e", gradient, line=12, module="lm_head", **facts)

    def rest(self, first="dw1", second="dw2", total="dw"):
        self.back("mm.default", "dl w", "de")
        self.back("embedding_dense_backward.default", "de x", second, "EmbeddingBackward0")
        self.back("add.Tensor", f"{first} {second}", total, "TBackward0", line=3)
        return self.mark("gradient of embed", total)

    def step(self, **more):
        trace = self.trace(prompt="padded", what="training", rung="float64")
        facts = {"cell": cell(self.stack), "trace": trace, "belongs": self.belongs}
        facts["gradients"] = {name: name.split()[-1] for name, _ in trace.marks if " " in name}
        return StepTrace(**(facts | {"parameters": ("embed.weight",)} | more))


def whole(stack="old"):
    return Step(stack).forward().head().rest()


def first(candidate, reference=None, question=QUESTION):
    return origin((reference or whole()).step(), candidate.step(), question)


def test_the_same_step_has_no_origin():
    assert first(whole("new")) == NOTHING


def test_a_wrong_backward_is_named_with_its_forward_operation():
    candidate = Step("new").forward().head("DW1", "mul.Tensor").rest("DW1", total="DW")
    result = first(candidate)
    assert (result.part, result.only_in, result.sink) == (
        "backward",
        "candidate",
        "gradient of embed",
    )
    assert (result.side.op, result.side.node, result.side.forward) == (
        "mul.Tensor",
        "MmBackward0",
        "mm.default",
    )
    assert (result.side.module, result.side.source) == ("lm_head", "x.py:12")
    assert (result.counterpart.stack, result.counterpart.op) == ("old", "mm.default")
    assert result.rung == "float64"


def test_a_loss_that_differs_is_named_before_the_backward():
    candidate = Step("new").source("Y", "labels", dtype="int64", structural=True)
    candidate.forward(loss="LOSS", labels="Y")
    result = first(candidate, Step().forward(), QUESTION._replace(backward=False))
    assert (result.part, result.sink, result.side.op) == (
        "loss",
        "loss",
        "nll_loss_forward.default",
    )
    assert result.side.source == "x.py:20"
    assert result.evidence == ("the other side has no int64[2, 4] labels, by which it selects",)


def test_logits_that_differ_are_part_of_the_forward():
    result = first(Step("new").forward("L", "LOSS"), Step().forward())
    assert (result.part, result.sink, result.side.op) == ("forward", "logits", "mm.default")


def test_a_half_that_is_missing_is_named_where_it_is_computed():
    """The candidate's gradient is one of the two halves, which the reference computes, too."""
    candidate = Step("new").forward()
    candidate.back("nll_loss_backward.default", "loss y", "dl", "NllLossBackward0")
    candidate.back("mm.default", "dl w", "de")
    candidate.back("embedding_dense_backward.default", "de x", "dw2", "EmbeddingBackward0")
    candidate.mark("gradient of embed", "dw2")
    result = first(candidate)
    assert result.only_in == "reference"
    assert (result.side.stack, result.side.op) == ("old", "mm.default")
    assert result.side.module == "lm_head"


def test_a_gradient_that_one_side_lacks_counts_only_if_it_gets_none():
    candidate = Step("new").forward().head()
    assert first(candidate) == NOTHING  # its layout is not traced to the checkpoint
    result = first(candidate, question=QUESTION._replace(without=frozenset({"embed"})))
    assert (result.only_in, result.side.op) == ("reference", "mm.default")


def test_gradients_that_are_not_compared_by_name_do_not_count():
    candidate = Step("new").forward().head("DW1", "mul.Tensor").rest("DW1", total="DW")
    question = QUESTION._replace(skipped=frozenset({"embed"}))
    assert first(candidate, question=question) == NOTHING


def test_the_earliest_gradient_in_the_backward_is_taken():
    """The forward's order of parameters is not that of the backward."""
    reference, candidate = whole(), Step("new").forward().head("DW1", "mul.Tensor")
    candidate.rest("DW1", total="DW").mark("gradient of head", "DW1")
    reference.mark("gradient of head", "dw1")
    assert first(candidate, reference).sink == "gradient of head"


def test_a_parameter_in_another_layout_is_known():
    candidate = Step("new").source("fused", "mlp.gate_up").forward()
    candidate.back("nll_loss_backward.default", "loss y", "dl", "NllLossBackward0")
    candidate.back("bmm.default", "dl fused", "D").mark("gradient of embed", "D")
    result = origin(whole().step(), candidate.step(parameters=("mlp.gate_up",)), QUESTION)
    assert (result.side.op, result.side.tensor) == ("bmm.default", "")
    unknown = origin(whole().step(), candidate.step(), QUESTION)
    assert unknown.side.tensor == "mlp.gate_up"


def test_rows_that_no_loss_counts_are_not_accused():
    """The candidate takes the last position along, with a label that is ignored."""
    reference, candidate = Step(), Step("new")
    for step, numbers, loss in ((reference, (5, 6, 7), "a"), (candidate, (5, 6, 7, 8), "b")):
        step.op("embedding.default", "w x", "e").op("mm.default", "e w", "l").mark("logits", "l")
        scores = f"scores {len(numbers)}".replace(" ", "")
        step.op("_log_softmax.default", "l", scores, rows=rows(*numbers), shape=(len(numbers), 4))
        step.op("nll_loss_forward.default", f"{scores} y", loss, arguments=loss).mark("loss", loss)
    result = first(candidate, reference, QUESTION._replace(backward=False))
    assert result.side.op == result.counterpart.op == "nll_loss_forward.default"


def rows(*numbers):
    return base64.b64encode(np.array(numbers, "<i8").tobytes()).decode()


@pytest.mark.parametrize("side", [0, 1])
def test_what_cannot_be_traced_is_a_reason(side):
    failure = Failure(phase="training", type="ValueError", message="no\nway", traceback="")
    steps = [whole().step(), whole("new").step()]
    steps[side] = steps[side].model_copy(update={"failure": failure})
    assert origin(*steps, QUESTION).endswith("could not be traced: ValueError: no")
    steps[side] = whole().step(leaks=("mm.default",))
    assert "lower precision than float64 comes out of mm.default" in origin(*steps, QUESTION)

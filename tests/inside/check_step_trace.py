"""step_trace: operations of a backward have the module and the line of their forward operation."""

import functools

import numpy as np
import tiny
import torch
from samebits_probe.questions.training import batches, origin
from samebits_probe.questions.training import trace as step_trace
from samebits_probe.questions.training.learner import Learner
from samebits_probe.trace.values import coarsened

torch.set_num_threads(1)


def model(**changed):
    return tiny.model(**({"intermediate_size": 56} | changed))


class Traced:
    """The trace of a step by its operations."""

    def __init__(self, made, *, backward=True, precise=False):
        learner = Learner(made, torch.float32)
        where = origin.places(made, None)
        batch = batches.batches(made, "causal-lm", {})[0]
        learner = learner.in_float64() if precise else learner
        trace, facts = step_trace.traced(learner, batch, where, backward=backward)
        self.facts = facts["trace"]
        self.belongs = {int(index): tuple(names) for index, names in trace.belongs().items()}
        self.marks = dict(self.facts["marks"])
        self.leaks = learner.leaks

    def column(self, column, number):
        return self.facts[column][number]

    def of(self, *, node="", name=""):
        """Yield module, functions and line of the operations of a node or of a name."""
        for index, op in enumerate(self.facts["ops"]):
            its_node = self.belongs.get(index, ("", ""))[0]
            if its_node == node and name in ("", self.column("names", op[0])):
                chain = self.column("chains", op[5]).split()
                functions = [self.facts["functions"][int(n)]["name"] for n in chain]
                yield self.column("modules", op[4]), functions, op[6]

    def hashes(self):
        values = self.facts["values"]
        return {name: values[number]["hash"] for name, number in self.marks.items()}


def test_a_trace_changes_no_bits_and_marks_every_gradient():
    made = model()
    traced = Traced(made)
    assert traced.facts["effect"] == "none"
    gradients = {f"gradient of {name}" for name, _ in made.named_parameters()}
    assert {"logits", "loss", *gradients} == set(traced.marks)
    assert not any(hasattr(p, "_samebits_value") for p in made.parameters())


def test_a_trace_is_the_same_again():
    first, again = Traced(model()), Traced(model())
    assert first.hashes() == again.hashes()
    assert first.facts["ops"] == again.facts["ops"]
    assert [v["hash"] for v in first.facts["values"]] == [v["hash"] for v in again.facts["values"]]


def test_the_backward_has_the_places_of_the_forward():
    traced = Traced(model())
    forward = list(traced.of(name="silu.default"))
    backward = list(traced.of(node="SiluBackward0"))
    assert len(forward) == 2
    assert backward == forward[::-1]
    assert all("mlp" in module and functions and line for module, functions, line in backward)
    heads = list(traced.of(node="MmBackward0", name="mm.default"))
    assert heads[0][0] == "lm_head"
    loss = list(traced.of(node="NllLossBackward0", name="nll_loss_backward.default"))
    assert loss == list(traced.of(name="nll_loss_forward.default"))


def test_every_operation_of_the_backward_is_one():
    traced = Traced(model())
    indices = sorted(traced.belongs)
    assert indices == list(range(indices[0], indices[-1] + 1))
    made_by = {of for node, of in traced.belongs.values() if node != "AccumulateGrad"}
    assert "" not in made_by
    assert all(of == "" for node, of in traced.belongs.values() if node == "AccumulateGrad")


def test_without_a_backward_there_is_none():
    traced = Traced(model(), backward=False)
    assert not traced.belongs
    assert set(traced.marks) == {"logits", "loss"}


def test_float64_leaves_rounding_out():
    """Two layouts of the same product round differently, and are the same in coarse float64."""
    plain, turned = model(), model()
    projection = turned.model.layers[0].mlp.down_proj
    projection.forward = functools.partial(in_halves, projection)
    own = Traced(plain).hashes(), Traced(turned).hashes()
    exact = Traced(plain, precise=True), Traced(turned, precise=True)
    assert own[0] != own[1]
    assert not exact[0].leaks
    assert exact[0].hashes() == exact[1].hashes()


def in_halves(linear, states):
    """Return a product as the sum of two."""
    half = linear.weight.shape[1] // 2
    left = torch.nn.functional.linear(states[..., :half], linear.weight[:, :half])
    return left + torch.nn.functional.linear(states[..., half:], linear.weight[:, half:])


class Square(torch.autograd.Function):
    """A square with its gradient."""

    @staticmethod
    def forward(ctx, states):
        ctx.save_for_backward(states)
        return states * states

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2.0 * ctx.saved_tensors[0]


class WrongSquare(Square):
    """A square with three times its half gradient."""

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3.0 * ctx.saved_tensors[0]


# only functions of a model's code are named, and this file stands for one
Square.__module__ = WrongSquare.__module__ = "transformers_modules.own"


def squared(function):
    made = model()
    made.model.layers[1].mlp.register_forward_hook(
        lambda _module, _args, output: function.apply(output)
    )
    return Traced(made)


def test_a_wrong_backward_of_own_code_differs_first_in_its_node():
    right, again, wrong = squared(Square), squared(Square), squared(WrongSquare)
    assert right.hashes() == again.hashes()
    assert right.hashes()["loss"] == wrong.hashes()["loss"]
    known = {value["hash"] for value in right.facts["values"]}
    values = wrong.facts["values"]
    first = next(
        index
        for index, op in enumerate(wrong.facts["ops"])
        if any(values[v]["hash"] not in known for v in op[3])
    )
    assert wrong.belongs[first] == ("WrongSquareBackward", "mul.Tensor")
    op = wrong.facts["ops"][first]
    assert wrong.column("modules", op[4]) == "model.layers.1"
    assert all(values[v]["hash"] in known for v in op[2])


def test_memory_that_was_not_written_is_no_value():
    made = model()
    made.model.layers[0].mlp.register_forward_hook(through_new_memory)
    hashes = Traced(made, precise=True).hashes()
    assert hashes == Traced(model(), precise=True).hashes()


def through_new_memory(_module, _args, output):
    memory = torch.empty_like(output)
    memory.copy_(output)
    return memory


def test_a_loss_of_half_the_size_is_another_one():
    """Coarse numbers of forwards forget their power of two; those of steps do not."""
    made, halved = model(), model()
    base = halved.__class__.forward

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        output = base(self, input_ids, attention_mask, labels=labels)
        output["loss"] = output["loss"] / 2
        return output

    halved.__class__ = type("Halved", (halved.__class__,), {"forward": forward})
    whole, half = (Traced(m, precise=True).hashes() for m in (made, halved))
    assert whole["logits"] == half["logits"]
    assert not [name for name in whole if name != "logits" and whole[name] == half[name]]


def test_the_smallest_numbers_are_made_coarse():
    smallest = np.array([5e-324, -5e-324, 0.0])
    assert coarsened(smallest).tolist() == [1 << 19, -(1 << 19), 0]
    assert coarsened(np.array([3.0, 1.0])).tolist() == [3 << 18, 1 << 18]

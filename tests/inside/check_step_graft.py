"""step_graft: the piece of a loss that differs restores the other step, and no other piece does."""

import functools
import json
import tempfile

import tiny
import torch
from samebits_probe.model.tensor import Keeper, stored
from samebits_probe.questions.training import batches, graft, origin
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.loss_calls import LossCalls, fitted
from transformers.loss import loss_utils

torch.set_num_threads(1)


def model(loss=None):
    """Return a small llama; ``loss`` is one of its own of logits, labels and num_items_in_batch."""
    made = tiny.model(intermediate_size=56)
    if loss is not None:
        base = made.__class__
        made.__class__ = type(base.__name__, (base,), {"forward": forward_with(base, loss)})
    return made


def forward_with(base, loss):
    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        items = kwargs.pop("num_items_in_batch", None)
        old = functools.partial(base.forward, self)
        output = old(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        if labels is not None:
            output["loss"] = loss(output.logits, labels, items)
        return output

    return forward


def cross_entropy(scores, wanted, **kwargs):
    flat = scores.reshape(-1, scores.shape[-1])
    return torch.nn.functional.cross_entropy(flat, wanted.reshape(-1), **kwargs)


def right(logits, labels, _items):
    return cross_entropy(logits[:, :-1], labels[:, 1:])


def padded(logits, labels, _items):
    """The same labels, with the last position and a label that is ignored."""
    return cross_entropy(logits, torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100))


def unshifted(logits, labels, _items):
    return cross_entropy(logits, labels)


def unmasked(logits, labels, _items):
    return cross_entropy(logits[:, :-1], labels[:, 1:].clamp(min=0))


def summed(logits, labels, _items):
    return cross_entropy(logits[:, :-1], labels[:, 1:], reduction="sum")


def smoothed(logits, labels, _items):
    return cross_entropy(logits[:, :-1], labels[:, 1:], label_smoothing=0.1)


def by_hand(logits, labels, _items):
    scores, wanted = torch.log_softmax(logits[:, :-1], -1), labels[:, 1:]
    picked = scores.gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
    return -(picked * (wanted != -100)).sum() / wanted.numel()


def grafted(donor, patient, batch="padded", *, precise=False):
    """Return what a patient says of the pieces of a donor."""
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    facts = []
    for made in (donor, patient):
        (wanted,) = [b for b in batches.batches(made, "causal-lm", {}) if b.name == batch]
        learner = Learner(made, torch.float32)
        learner = learner.in_float64() if precise else learner
        where = origin.places(made, None)
        if not facts:
            pieces = graft.Steps(learner, wanted, where).donated(keeper)
            facts.append(json.loads(json.dumps(pieces)))
            slope = stored(keeper.root, pieces["slope"])
        else:
            facts.append(graft.Steps(learner, wanted, where).tried(facts[0], slope, ([], [])))
    return facts[1]


def restoring(facts):
    assert not facts["tried"][0]["suspects"]
    return [
        tuple(run["suspects"])
        for run in facts["tried"]
        if run["of"] and run["same"] == run["of"] and not run["error"]
    ]


def test_the_same_loss_needs_nothing():
    facts = grafted(model(right), model(right))
    assert restoring(facts)[0] == ()
    assert [run["suspects"] for run in facts["tried"]] == [[], ["loss function"]]


PLANTS = {
    "labels": (right, unmasked),
    "reduction": (right, summed),
    "label_smoothing": (right, smoothed),
}


def test_each_planted_loss_is_restored_by_its_piece_alone():
    for precise in (False, True):
        for name, (old, new) in PLANTS.items():
            facts = grafted(model(old), model(new), precise=precise)
            assert restoring(facts) == [(name,), ("loss function",)], (name, precise, facts)


def test_labels_are_put_where_the_reference_has_them():
    facts = grafted(model(right), model(unshifted), precise=True)
    assert restoring(facts) == [("labels",), ("loss function",)], facts
    assert restoring(grafted(model(right), model(padded), precise=True))[0] == ()


def test_a_loss_by_hand_is_restored_as_a_whole():
    facts = grafted(model(right), model(by_hand))
    assert restoring(facts) == [("loss function",)], facts
    assert "cross_entropy runs 0 times" in facts["untried"][0][1]


def test_the_number_of_items_is_put_into_the_librarys_loss():
    facts = grafted(model(right), model(), "items", precise=True)
    assert restoring(facts) == [("num_items_in_batch",), ("loss function",)], facts


def test_a_gradient_that_differs_elsewhere_is_not_restored():
    made = model(right)
    made.lm_head.register_forward_hook(lambda _module, _args, output: Tilted.apply(output))
    facts = grafted(model(right), made)
    assert restoring(facts) == []


class Tilted(torch.autograd.Function):
    """The identity, with another gradient."""

    @staticmethod
    def forward(_ctx, states):
        return states.clone()

    @staticmethod
    def backward(_ctx, gradient):
        return gradient * torch.arange(gradient.shape[-1])


def test_labels_that_do_not_fit_are_none():
    labels = torch.tensor([1, 2, -100, 4, 5, -100])
    assert fitted(labels, torch.zeros(2, 3), 2, -100).tolist() == [[1, 2, -100], [4, 5, -100]]
    assert fitted(labels, torch.zeros(8), 2, -100).tolist() == [1, 2, -100, -100, 4, 5, -100, -100]
    assert fitted(labels, torch.zeros(4), 2, -100).tolist() == [1, 2, 4, 5]
    assert fitted(labels.abs(), torch.zeros(4), 2, -100) is None
    assert fitted(labels, torch.zeros(10), 2, -100) is None


def test_the_librarys_function_is_put_back():
    before = loss_utils.fixed_cross_entropy
    with LossCalls():
        assert loss_utils.fixed_cross_entropy is not before
    assert loss_utils.fixed_cross_entropy is before

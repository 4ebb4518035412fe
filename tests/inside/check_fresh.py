"""model.fresh: what was asked about, or will be, is known once the tensors are gone; nothing else is."""

import weakref

import torch
from raising import raised
from samebits_probe.model import fresh as model_fresh
from samebits_probe.model.fresh import Fresh
from samebits_probe.model.tensor import tensor_hash


def test_equal_differs_and_absent():
    fresh = Fresh({"x": torch.ones(2)})
    assert fresh.against("x", tensor_hash(torch.ones(2))) == "equal"
    assert fresh.against("x", tensor_hash(torch.zeros(2))) == "differs"
    assert fresh.against("x", tensor_hash(torch.ones(2, 1))) == "differs"
    assert fresh.against("y", tensor_hash(torch.ones(2))) == "absent"
    assert model_fresh.against(None, "x", tensor_hash(torch.ones(2))) == "not compared"


def test_settled_it_holds_no_tensor_and_answers_what_was_named():
    tensors = {name: torch.full((3,), float(i)) for i, name in enumerate("abc")}
    held = [weakref.ref(tensor) for tensor in tensors.values()]
    digests = {name: tensor_hash(tensor) for name, tensor in tensors.items()}
    fresh = Fresh(tensors)
    assert fresh.against("a", digests["a"]) == "equal"
    del tensors
    fresh.keep_hashes_only(["b", "no such tensor"])
    assert [ref() for ref in held] == [None] * 3
    assert fresh.against("a", digests["b"]) == "differs"
    assert fresh.against("b", digests["b"]) == "equal"
    assert fresh.against("no such tensor", digests["b"]) == "absent"
    raised(KeyError, fresh.against, "c", digests["c"])  # what it let go

"""model.leftover: what forwards leave in a model is seen, and taken back."""

import random
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import torch
from samebits_probe.model.leftover import Leftover


class Model(torch.nn.Module):
    """Holds everything that a forward may change."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.register_buffer("table", torch.tensor([1.0, float("nan")]))
        self.register_buffer("view", torch.ones(1).expand(3))
        self.register_buffer("large", torch.zeros(1 << 19))
        self.n, self.lengths, self.by_name = 1, [1, 2], {"a": 1}
        self.state = SimpleNamespace(n=1, table=torch.zeros(2), kept=OrderedDict(a=1, b=2))


CHANGES = {
    "a number": lambda m: setattr(m, "n", 2),
    "a new attribute": lambda m: setattr(m, "more", 1),
    "an attribute that is gone": lambda m: delattr(m, "n"),
    "an attribute of a module inside": lambda m: setattr(m.inner, "n", 2),
    "a buffer that is replaced": lambda m: m.register_buffer("table", torch.zeros(2)),
    "a buffer that is written": lambda m: m.table.add_(1),
    "a buffer that is written unseen by its version": lambda m: m.table.data.add_(1),
    "an expanded buffer that is replaced": lambda m: setattr(m, "view", torch.zeros(3)),
    "a longer list": lambda m: m.lengths.extend([3, 4]),
    "a shorter list": lambda m: m.lengths.clear(),
    "an item of a list": lambda m: m.lengths.reverse(),
    "an item of a dict": lambda m: m.by_name.update(a=2, b=3),
    "an attribute of an object": lambda m: setattr(m.state, "n", 2),
    "a tensor of an object": lambda m: m.state.table.add_(1),
    "an entry of a container of an object": lambda m: m.state.kept.update(c=3),
    "an entry that makes place for another": lambda m: m.state.kept.update(c=m.state.kept.pop("a")),
    "a number that Python draws": lambda _: random.random(),
    "a number that numpy draws": lambda _: np.random.rand(),
    "a number that torch draws": lambda _: torch.rand(()),
}


def held(model):
    return {
        "attributes": {k: v for k, v in vars(model).items() if isinstance(v, (int, list, dict))},
        "inner": getattr(model.inner, "n", None),
        "state": (model.state.n, model.state.table.tolist(), [*model.state.kept.items()]),
        "buffers": {name: repr(buffer.tolist()[:3]) for name, buffer in model.named_buffers()},
        "drawn": (random.random(), np.random.rand(), float(torch.rand(()))),
    }


def test_each_change_is_seen_and_taken_back():
    for name, change in CHANGES.items():
        model = Model()
        random.seed(0), np.random.seed(0), torch.manual_seed(0)
        expected = held(model)
        random.seed(0), np.random.seed(0), torch.manual_seed(0)
        before = Leftover(model)
        assert not before.has_changed(), name
        change(model)
        assert before.has_changed(), name
        before.restore()
        assert not before.has_changed(), name
        assert held(model) == expected, name


def test_what_is_not_copied_is_seen_when_it_is_written():
    for change in (lambda m: m.inner.weight.add_(1), lambda m: m.large.add_(1)):
        model = Model()
        before = Leftover(model)
        with torch.no_grad():
            change(model)
        assert before.has_changed()


def test_a_forward_that_leaves_nothing_changes_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
    before = Leftover(model)
    model(torch.ones(3, 2))
    model[0].n = None
    del model[0].n
    model[1].running_mean = model[1].running_mean.clone()
    assert not before.has_changed()

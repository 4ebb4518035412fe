"""cell.cell: the logits are those of a plain forward, and each run draws other numbers."""

import random
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from samebits_probe.cell import cell as cell_cell
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.tensor import Keeper, tensor_hash


class Model(torch.nn.Module):
    """Two layers; with ``fast``, they compute otherwise where a hook watches one of them."""

    def __init__(self, *, fast):
        super().__init__()
        torch.manual_seed(1)
        self.fast = fast
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])

    def forward(self, hidden_states):
        watched = any(layer._forward_hooks for layer in self.layers)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return SimpleNamespace(logits=hidden_states * (1 if watched or not self.fast else 2))


def forward(model):
    cell = cell_cell.Cell.__new__(cell_cell.Cell)
    cell.loaded, cell.skips = SimpleNamespace(model=model), []
    cell.keeper = Keeper(tempfile.mkdtemp(), 0, [])
    dtypes = {}
    fed = Inputs({"hidden_states": torch.ones(1, 3, 4)}, None, None)
    facts = cell._forward("short", fed, dtypes)
    return facts, cell.skips, dtypes


def test_layers_are_watched_where_watching_changes_nothing():
    model = Model(fast=False)
    facts, skips, dtypes = forward(model)
    names = [layer["name"] for layer in facts["hidden_states"]]
    assert names == ["embeddings", "layers.0", "layers.1"]
    assert (skips, dtypes) == ([], {"float32": 3})


def test_where_watching_the_layers_changes_the_logits_the_plain_ones_count():
    model = Model(fast=True)
    facts, skips, dtypes = forward(model)
    plain = model(torch.ones(1, 3, 4)).logits
    assert facts["logits"]["hash"] == tensor_hash(plain)
    assert (facts["hidden_states"], dtypes) == ([], {})
    assert skips == [{"what": "hidden_states short", "reason": cell_cell.HOOKS_CHANGE_LOGITS}]


def test_what_a_forward_gives_beside_the_logits_is_named_as_not_compared():
    class Span(torch.nn.Module):
        def forward(self, hidden_states):
            both = {"start_logits": hidden_states, "end_logits": hidden_states * 2, "loss": None}
            return transformers.utils.ModelOutput(both)

    facts, skips, _ = forward(Span())
    assert facts["logits"]["hash"] == tensor_hash(torch.ones(1, 3, 4))
    assert skips == [{"what": "output end_logits", "reason": cell_cell.ONLY_LOGITS_COMPARED}]


def drawn(run):
    cell_cell.seed_generators(run)
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_the_two_runs_draw_other_numbers_and_each_the_same_again():
    assert drawn("a") == drawn("a")
    assert all(one != other for one, other in zip(drawn("a"), drawn("b"), strict=True))

"""Phases of a cell: the logits are those of a plain forward, and each run draws other numbers."""

import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from samebits_probe.cell.phases import PHASES, discover
from samebits_probe.cell.phases import forward as forward_phase
from samebits_probe.cell.session import Session, seed_generators
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
    session = Session.__new__(Session)
    session.loaded, session.skips = SimpleNamespace(model=model), []
    session.keeper = Keeper(tempfile.mkdtemp(), 0, [])
    dtypes = {}
    fed = Inputs({"hidden_states": torch.ones(1, 3, 4)}, None, None)
    facts = forward_phase.forward(session, "short", fed, dtypes)
    return facts, session.skips, dtypes


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
    assert skips == [{"what": "hidden_states short", "reason": forward_phase.HOOKS_CHANGE_LOGITS}]


def test_what_a_forward_gives_beside_the_logits_is_named_as_not_compared():
    class Span(torch.nn.Module):
        def forward(self, hidden_states):
            both = {"start_logits": hidden_states, "end_logits": hidden_states * 2, "loss": None}
            return transformers.utils.ModelOutput(both)

    facts, skips, _ = forward(Span())
    assert facts["logits"]["hash"] == tensor_hash(torch.ones(1, 3, 4))
    assert skips == [{"what": "output end_logits", "reason": forward_phase.ONLY_LOGITS_COMPARED}]


def drawn(run):
    seed_generators(run)
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_the_two_runs_draw_other_numbers_and_each_the_same_again():
    assert drawn("a") == drawn("a")
    assert all(one != other for one, other in zip(drawn("a"), drawn("b"), strict=True))


TOY = '''"""Phase ``toy``: the largest logit of every position."""

from samebits_probe.cell.phase import Phase


def observe(session):
    for prompt, inputs in session.prompts().items():
        largest = session.loaded.model(**inputs.kwargs).logits.amax(-1)
        session.observe_tensors("toy", {"": largest}, prompt)


PHASE = Phase("toy", 25, observe)
'''


def test_phases_run_in_the_order_of_their_worth():
    names = [phase.name for phase in PHASES]
    assert names[:3] == ["weights", "forward", "greedy"]
    assert [phase.order for phase in PHASES] == sorted({phase.order for phase in PHASES})


def test_a_new_phase_is_one_file():
    folder = Path(tempfile.mkdtemp())
    (folder / "toy_phases").mkdir()
    (folder / "toy_phases" / "toy.py").write_text(TOY)
    sys.path.insert(0, str(folder))
    (phase,) = discover([str(folder / "toy_phases")], "toy_phases")
    assert (phase.name, phase.order) == ("toy", 25)
    session = Session.__new__(Session)
    session.keeper, session.signals = Keeper(tempfile.mkdtemp(), 1 << 20, []), {}
    ones = torch.ones(1, 3, 4)
    session.prompts = lambda: {"short": Inputs({"hidden_states": ones}, None, None)}
    session.loaded = SimpleNamespace(model=Model(fast=False))
    phase.observe(session)
    ref = session.signals["named"]["toy"]["short"][""]
    assert (ref["shape"], ref["dtype"]) == ([1, 3], "float32")
    assert ref["hash"] == tensor_hash(session.loaded.model(ones).logits.amax(-1))

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
from samebits_probe.cell.session import seed_generators
from samebits_probe.model import outputs
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.tensor import tensor_hash
from tiny import session_of
from torch._C import _len_torch_function_stack


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
    """Run a prompt in a run b that is whole: with hooks on the layers and plainly."""
    inputs = Inputs({"hidden_states": torch.ones(1, 3, 4)}, None, None)
    session = observed(model, {"short": inputs}, run="b")
    dtypes = session.signals["load"]["activation_dtypes"]
    return session.signals["forward"]["short"], session.skips, dtypes


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
    assert skips == [{"what": "hidden_states short", "reason": forward_phase.HOOKS_CHANGE_OUTPUTS}]


class Span(torch.nn.Module):
    """Returns two outputs; the second is another one where a hook watches, or at random."""

    def __init__(self, defect=""):
        super().__init__()
        self.defect, self.config = defect, SimpleNamespace()
        self.layers = torch.nn.ModuleList([torch.nn.Identity()])

    def forward(self, hidden_states):
        hidden_states = self.layers[0](hidden_states)
        factor = 2.0
        if self.defect == "hooked" and self.layers[0]._forward_hooks:
            factor = 3.0
        if self.defect == "random":
            factor = torch.rand(())
        both = {"start_logits": hidden_states, "end_logits": hidden_states * factor, "loss": None}
        return transformers.utils.ModelOutput(both)


SPAN_FED = {"short": Inputs({"hidden_states": torch.ones(1, 3, 4)}, None, None)}


def other_outputs(session):
    return {
        prompt: {name: ref["hash"] for name, ref in refs.items()}
        for prompt, refs in session.signals["named"]["outputs"].items()
    }


def test_what_a_forward_gives_beside_the_logits_is_a_signal_of_its_own_in_each_run():
    twice = {"short": {"end_logits": tensor_hash(torch.full((1, 3, 4), 2.0))}}
    for run in "ab":
        session = observed(Span(), SPAN_FED, run=run)
        facts = session.signals["forward"]["short"]
        assert facts["logits"]["hash"] == tensor_hash(torch.ones(1, 3, 4))
        assert facts["logits_name"] == "start_logits"
        assert other_outputs(session) == twice
        assert session.skips == []


def test_an_output_that_only_watching_changes_is_that_of_a_plain_forward():
    session = observed(Span("hooked"), SPAN_FED)
    assert other_outputs(session) == other_outputs(observed(Span(), SPAN_FED))
    assert [skip["what"] for skip in session.skips] == ["hidden_states short"]


def test_an_output_of_random_numbers_is_another_one_in_each_run():
    runs = [other_outputs(observed(Span("random"), SPAN_FED, run=run)) for run in "ab"]
    assert runs[0] != runs[1]


def test_each_output_is_hashed_once():
    hashed, compute = [], outputs.hash_or_none
    outputs.hash_or_none = lambda tensor: hashed.append(tensor) or compute(tensor)
    observed(Span(), SPAN_FED)
    assert len(hashed) == 2 * 2  # two outputs of a plain and of a watched forward


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
    ones = torch.ones(1, 3, 4)
    prompts = {"short": Inputs({"hidden_states": ones}, None, None)}
    session = session_of(Model(fast=False), prompts)
    phase.observe(session)
    ref = session.signals["named"]["toy"]["short"][""]
    assert (ref["shape"], ref["dtype"]) == ([1, 3], "float32")
    assert ref["hash"] == tensor_hash(session.loaded.model(ones).logits.amax(-1))


class Tally:
    """A count that is no state of a model."""

    __slots__ = ("n",)

    def __init__(self):
        self.n = 0


class Attending(torch.nn.Module):
    """An attention in two layers; ``defect`` names how it computes otherwise when watched."""

    def __init__(self, defect=""):
        super().__init__()
        torch.manual_seed(1)
        self.defect, self.forwards = defect, Tally()
        self.config = SimpleNamespace(sliding_window=6, max_length=4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])

    def forward(self, hidden_states, attention_mask=None):
        self.forwards.n += 1
        x, is_watched = hidden_states, _len_torch_function_stack() > 0
        is_masked = attention_mask is not None and bool((attention_mask == 0).any())
        is_long = hidden_states.shape[1] > 6
        if is_watched and self.defect == "refuses to be watched":
            raise LookupError
        for layer in self.layers:
            x = layer(x)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        changed = {
            "watched": is_watched,
            "watched and masked": is_watched and is_masked,
            "watched and long": is_watched and is_long,
            "hooked": any(layer._forward_hooks for layer in self.layers),
            "random": False,
        }
        if self.defect == "random":
            x = x + torch.rand(()) + random.random() + np.random.rand()
        return SimpleNamespace(logits=x * 2 if changed.get(self.defect) else x)


def fed(n, masked=False):
    generator = torch.Generator().manual_seed(n)
    mask = torch.ones(1, n, dtype=torch.long)
    mask[0, :masked] = 0
    kwargs = {"hidden_states": torch.randn(1, n, 4, generator=generator), "attention_mask": mask}
    return Inputs(kwargs, None, None)


FED = {"short": fed(3), "next": fed(5), "long": fed(9), "longer": fed(10), "padded": fed(4, True)}


def observed(model, prompts=FED, *, run="a", is_apart=False):
    session = session_of(model, prompts, run=run)
    session.is_apart = is_apart
    with torch.no_grad():
        forward_phase.observe(session)
    return session


def told(session):
    return session.signals, session.skips, session.failures, session.effect


def test_one_forward_gives_every_signal_that_three_give():
    model, apart = Attending(), Attending()
    session = observed(model)
    assert told(session) == told(observed(apart, is_apart=True))
    assert session.effect == "none"
    assert session.signals["attention"]["calls"].keys() == FED.keys()
    assert session.signals["evidence"]["prompts"].keys() == FED.keys()
    # plain beside watched: the first, the first past the window, the first with padding
    assert (model.forwards.n, apart.forwards.n) == (5 + 3, 3 * 5)


def test_run_b_runs_each_prompt_plainly_and_with_hooks():
    model = Attending()
    session = observed(model, run="b")
    assert (model.forwards.n, session.effect) == (2 * 5, "not checked")


def check_falls_back(defect, n_before, prompts=FED):
    """Check that a model is told of as it is where nothing is run together."""
    model, apart = Attending(defect), Attending(defect)
    session = observed(model, prompts)
    assert told(session) == told(observed(apart, prompts, is_apart=True))
    assert model.forwards.n == n_before + apart.forwards.n
    plain = {
        name: tensor_hash(Attending(defect)(**inputs.kwargs).logits)
        for name, inputs in prompts.items()
    }
    return session, plain


def logits(session):
    return {name: facts["logits"]["hash"] for name, facts in session.signals["forward"].items()}


def test_where_watching_changes_the_bits_every_prompt_is_run_plainly():
    session, plain = check_falls_back("watched", 2)
    assert (session.effect, logits(session)) == ("changed the bits", plain)
    assert all(facts["hidden_states"] for facts in session.signals["forward"].values())


def test_that_it_changes_only_padded_ones_is_seen_at_the_first_of_them():
    session, plain = check_falls_back("watched and masked", 8)
    assert (session.effect, logits(session)) == ("changed the bits", plain)


def test_that_it_changes_only_those_past_a_window_is_seen_at_the_first_of_them():
    session, plain = check_falls_back("watched and long", 5)
    assert (session.effect, logits(session)) == ("changed the bits", plain)


def test_where_hooks_change_the_bits_no_layer_counts():
    session, plain = check_falls_back("hooked", 2)
    assert logits(session) == plain
    assert [s["what"] for s in session.skips] == [f"hidden_states {name}" for name in FED]


def test_random_numbers_are_those_that_are_drawn_without_the_short_cut():
    session, _ = check_falls_back("random", 2)
    assert session.effect == "changed the bits"
    assert [s["what"] for s in session.skips] == [f"hidden_states {name}" for name in FED]


def test_a_model_that_cannot_be_watched_has_its_plain_logits():
    session, plain = check_falls_back("refuses to be watched", 2)
    assert logits(session) == plain
    assert [s["what"] for s in session.skips] == [f"attention.kernel {name}" for name in FED]
    assert session.effect == "not checked"


def test_a_failure_is_told_as_ever_and_the_next_prompt_is_watched():
    prompts = {"short": fed(3), "bad": Inputs({"hidden_states": 1}, None, None), "next": fed(5)}
    prompts["bad"] = Inputs({"hidden_states": torch.zeros(1, 2, 3)}, None, None)
    model, apart = Attending(), Attending()
    session, before = observed(model, prompts), observed(apart, prompts, is_apart=True)
    assert told(session) == told(before)
    assert [f["phase"] for f in session.failures] == ["forward bad"]
    assert model.forwards.n == 2 + 2 + 1


class Remembering(Attending):
    """Attends, and multiplies by what it remembers of its forwards, as ``kind`` says."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.is_first, self.lengths, self.unused = kind, True, [], 0
        self.register_buffer("scale", torch.ones(1))

    def forward(self, hidden_states, attention_mask=None):
        n, scale = hidden_states.shape[1], self.scale
        if self.kind == "first":  # ready only after the first forward
            scale, self.is_first = scale * (2 if self.is_first else 1), False
        if self.kind == "grows" and n > 3:  # as a dynamic rope: at once, and for good
            self.scale = scale = torch.full((1,), float(max(n, int(scale))))
        if self.kind == "grows late" and n > 3:
            self.lengths.append(n)
            scale = scale * max(self.lengths[:-1], default=1)
        if self.kind == "counts":
            self.unused += 1
        if self.kind == "draws":
            torch.rand(())
        output = super().forward(hidden_states, attention_mask)
        return SimpleNamespace(logits=output.logits * scale)


def check_remembers(kind):
    """Check that the capture is that of three forwards; return the numbers of forwards."""
    model, apart = Remembering(kind), Remembering(kind)
    session = observed(model)
    assert told(session) == told(observed(apart, is_apart=True))
    return session, model.forwards.n, apart.forwards.n


def test_a_model_that_is_ready_after_its_first_forward_is_as_new_where_all_prompts_run_anew():
    session, n, n_apart = check_remembers("first")
    assert [s["what"] for s in session.skips] == ["hidden_states short"]
    assert n == 2 + n_apart


def test_each_forward_that_scales_for_a_longer_prompt_is_checked_by_a_plain_one():
    session, n, n_apart = check_remembers("grows")
    assert (session.skips, session.effect) == ([], "none")
    # plain beside watched: the first, "next" as it grows, the first past the window, "longer", and the padded
    assert (n, n_apart) == (5 + 5, 3 * 5)


def test_what_the_next_forward_finds_of_the_last_is_seen():
    session, n, n_apart = check_remembers("grows late")
    assert [s["what"] for s in session.skips] == [
        f"hidden_states {name}" for name in ("next", "long", "longer")
    ]
    assert n == 2 + 2 + n_apart


def test_a_count_of_forwards_and_a_number_drawn_are_left_as_three_forwards_leave_them():
    for kind in ("counts", "draws"):
        session, n, n_apart = check_remembers(kind)
        assert (session.effect, n) == ("none", 2 + n_apart)


def test_modules_that_look_at_hooks_are_never_run_together():
    class WithFastPath(Attending):
        def __init__(self):
            super().__init__()
            self.unused = torch.nn.MultiheadAttention(4, 2)

    model = WithFastPath()
    observed(model)
    assert model.forwards.n == 3 * 5


def test_what_a_layer_gave_is_hashed_before_it_changes():
    class Overwriting(Attending):
        def forward(self, hidden_states, attention_mask=None):
            x = self.layers[0](hidden_states)
            return SimpleNamespace(logits=self.layers[1](x.mul_(2)))

    model, limits = Overwriting(), []
    for limit in (0, 1 << 20):
        session = observed(model, {"short": FED["short"]})
        session.keeper.limit = limit
        with torch.no_grad():
            forward_phase.observe(session)
        _, first, _ = session.signals["forward"]["short"]["hidden_states"]
        limits.append(first["ref"])
    with torch.no_grad():
        ref = tensor_hash(model.layers[0](FED["short"].kwargs["hidden_states"]))
    assert [(r["hash"], r["stored"]) for r in limits] == [(ref, False), (ref, True)]

"""Phase state: the first prompt gives its bytes again, or what was left behind is named."""

from collections import OrderedDict
from types import SimpleNamespace

import torch
from samebits_probe.cell.phases import forward as forward_phase
from samebits_probe.cell.phases import state as state_phase
from samebits_probe.model import draws, heap
from samebits_probe.model.inputs import Inputs
from tiny import llama, session_of


class Keeping(torch.nn.Module):
    """Leaves what ``kind`` says behind, in forwards of more than three positions."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(1)
        self.kind, self.lengths, self.hits, self.unused = kind, [], 0, 0
        self.memory, self.config = SimpleNamespace(n=0), SimpleNamespace()
        self.hidden = [[[0]]]
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4)])
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, hidden_states):
        x, is_long = self.layers[0](hidden_states), hidden_states.shape[1] > 3
        self.unused += is_long  # changes nothing that is computed
        if is_long:
            self.leave()
        if self.kind == "random":
            x = x + torch.rand(())
        factor = self.scale + self.hits + len(self.lengths) + self.memory.n + self.hidden[0][0][0]
        two = {"logits": x, "pooled": x.sum(1) * factor}
        if self.kind != "pooled only":
            two["logits"] = x * factor
        return two

    def leave(self):
        if self.kind in ("buffer", "pooled only"):
            self.scale = torch.full((1,), 2.0)
        elif self.kind == "attribute":
            self.hits += 1
        elif self.kind == "list":
            self.lengths.append(1)
        elif self.kind == "object":
            self.memory.n += 1
        elif self.kind == "deep":
            self.hidden[0][0][0] += 1
        elif self.kind == "weight":
            self.layers[0].weight.data.add_(1)
        elif self.kind == "raises":
            del self.scale


def fed(n):
    values = torch.randn(1, n, 4, generator=torch.Generator().manual_seed(n))
    return Inputs({"hidden_states": values}, None, None)


FED = {"short": fed(3), "long": fed(9)}


class Lazy(torch.nn.Module):
    """Makes its table when a longer text than before comes; ``made`` is the longest length that it has a table for."""

    def __init__(self, made):
        super().__init__()
        self.made, self.config = made, SimpleNamespace()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4)])
        self.register_buffer("table", torch.empty(16), persistent=False)

    def forward(self, hidden_states):
        if hidden_states.shape[1] > self.made:
            self.made = 16
            self.register_buffer("table", torch.arange(16.0), persistent=False)
        return {"logits": self.layers[0](hidden_states) + self.table[0]}


def test_a_buffer_that_a_forward_wrote_is_told_from_one_that_it_read():
    for made, replaced in ((0, True), (16, False)):
        model = Lazy(made)
        session = session_of(model, FED)
        pattern = heap.PATTERNS[session.job["run"]]
        model.table.view(torch.uint8).fill_(pattern)
        session.signals["buffers"] = {"table": {"unwritten": True}, "other": {"unwritten": False}}
        with torch.no_grad():
            forward_phase.observe(session)
        assert session.signals["buffers"] == {
            "table": {"unwritten": True, "replaced": replaced},
            "other": {"unwritten": False},
        }


class Remembering(torch.nn.Module):
    """Keeps what its first layer gave for a length, as OmDet-Turbo the embeddings of a text."""

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(1)
        self.factor, self.config = factor, SimpleNamespace()
        self.kept = SimpleNamespace(entries=OrderedDict(), n=0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, hidden_states):
        entries, length = self.kept.entries, hidden_states.shape[1]
        factor = self.factor if length in entries else 1.0
        if length not in entries:
            self.kept.n += 1
            entries[length] = self.layers[0](hidden_states)
        return {"logits": self.layers[1](entries[length]) * factor}


def test_both_runs_see_a_model_alike_that_keeps_what_it_computed():
    """With ``factor`` the second forward gives other numbers, so all prompts are run anew from the first state."""
    for factor in (1.0, 2.0):
        first, second = (session_of(Remembering(factor), FED, run=run) for run in "ab")
        for session in (first, second):
            with torch.no_grad():
                forward_phase.observe(session)
        assert first.signals["forward"] == second.signals["forward"], factor
        names = [layer["name"] for layer in first.signals["forward"]["short"]["hidden_states"]]
        assert names == ([] if factor > 1 else ["embeddings", "layers.1"]), factor


def observed(kind, between=lambda model: None, *, prompts=FED, limit=1 << 20, **options):
    model = Keeping(kind)
    session = session_of(model, prompts, limit=limit, **options)
    with torch.no_grad():
        forward_phase.observe(session)
        between(model)
        state_phase.observe(session)
    return session, model


def causes(session):
    return [(left["kind"], left["name"]) for left in session.signals["state"]["causes"]]


def test_a_model_that_leaves_nothing_that_matters_gives_its_bytes_again():
    session, model = observed("nothing")
    facts = session.signals["state"]
    assert (facts["prompt"], facts["holds"], facts["outputs"]) == ("short", True, [])
    assert model.unused > 0
    assert (session.skips, session.failures) == ([], [])


NAMED = {
    "buffer": ("buffer", "scale"),
    "attribute": ("attribute", "hits"),
    "list": ("attribute", "lengths[0]"),
    "object": ("attribute", "memory.n"),
}


def test_what_is_left_behind_is_named():
    for kind, cause in NAMED.items():
        session, _ = observed(kind)
        facts = session.signals["state"]
        assert (facts["holds"], facts["is_undone"]) == (False, True), kind
        assert cause in causes(session), kind
        assert facts["outputs"] == ["pooled", "logits"]
        assert facts["distance"]["max_abs"] > 0
        # of a list with several new items none alone brings the bytes back
        assert (("attribute", "unused") in causes(session)) == (kind == "list"), kind


def test_one_cause_is_enough_where_others_changed_too():
    session, _ = observed("buffer")
    assert causes(session) == [("buffer", "scale")]
    assert {"name": "unused", "kind": "attribute"} in session.signals["state"]["changes"]


def test_an_output_besides_the_logits_shows_it_alone():
    session, _ = observed("pooled only")
    facts = session.signals["state"]
    assert (facts["holds"], facts["outputs"], facts["is_undone"]) == (False, ["pooled"], True)
    assert facts["distance"]["n_differ"] == 0


def test_where_the_logits_are_not_stored_the_distance_is_that_of_the_restored_model():
    stored, _ = observed("buffer")
    absent, _ = observed("buffer", limit=0)
    assert not absent.signals["forward"]["short"]["logits"]["stored"]
    assert absent.signals["state"]["distance"] == stored.signals["state"]["distance"]


def test_what_cannot_be_undone_is_not_claimed():
    for kind in ("deep", "weight"):
        session, _ = observed(kind)
        facts = session.signals["state"]
        assert (facts["holds"], facts["is_undone"], facts["causes"]) == (False, False, []), kind


def test_a_model_that_draws_is_not_accused():
    session, _ = observed("random")
    facts = session.signals["state"]
    assert (facts["holds"], facts["repeats"]) == (False, False)
    assert "causes" not in facts
    (draw,) = facts["draws"]
    assert draw["op"] == "rand"
    assert "check_state.py:" in draw["place"]


def test_a_dropout_that_is_on_in_evaluation_is_placed_and_a_model_that_repeats_draws_nothing():
    model = llama().eval()
    inner = model.model.layers[0].mlp.forward
    model.model.layers[0].mlp.forward = lambda x: torch.nn.functional.dropout(inner(x), 0.5)
    kwargs = {"input_ids": torch.tensor([[5, 6, 7]])}
    ops = {draw["op"] for draw in draws.of(model, kwargs)}
    assert ops & {"native_dropout", "bernoulli_"}, ops
    assert draws.of(llama().eval(), kwargs) == []


def test_what_generate_leaves_is_seen_and_stays_for_later_phases():
    session, model = observed(
        "nothing", lambda model: setattr(model, "scale", torch.full((1,), 3.0))
    )
    assert causes(session) == [("buffer", "scale")]
    assert float(model.scale) == 3.0


def test_a_second_time_that_raises_is_a_failure_of_its_phase():
    session, _ = observed("raises", prompts={"short": fed(2)}, between=lambda m: m.leave())
    assert [failure["phase"] for failure in session.failures] == ["state short"]
    assert "state" not in session.signals


def test_run_b_does_not_ask_it():
    session, _ = observed("buffer", run="b")
    assert "state" not in session.signals


def test_without_time_it_is_left_out_with_the_reason():
    session = session_of(Keeping("buffer"), FED)
    session.no_time = lambda n: "no time"
    with torch.no_grad():
        forward_phase.observe(session)
        state_phase.observe(session)
    assert session.skips == [{"what": "state short", "reason": "no time", "why": "cost"}]


def test_a_real_rope_that_is_reset_leaves_nothing():
    model = llama(max_position_embeddings=64, pad_token_id=0)
    ids = torch.arange(5)[None]
    session = session_of(model, {"short": Inputs({"input_ids": ids}, None, None)})
    with torch.no_grad():
        forward_phase.observe(session)
        model.generate(input_ids=ids, max_new_tokens=40, do_sample=False)
        state_phase.observe(session)
    assert session.signals["state"]["holds"]
    assert "named" not in session.signals  # a cache is no output

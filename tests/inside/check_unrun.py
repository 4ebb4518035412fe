"""model.unrun: modules that no prompt ran, and code that reads parameters without a call."""

import torch
from samebits_probe.model import unrun
from torch.nn import functional


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(9, 4)
        self.tower = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
        self.by_hand = torch.nn.Linear(4, 4)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.recurrent = torch.nn.LSTM(4, 4)
        self.head = torch.nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        hidden = functional.linear(self.embed(ids), self.by_hand.weight.t().t(), self.by_hand.bias)
        return self.recurrent(self.experts[1](hidden))[0]


def observed(model):
    calls = unrun.Calls(model)
    with torch.no_grad():
        model(torch.tensor([[1, 2]]))
        calls.stop()
        model.tower(torch.ones(1, 4))  # what runs later counts no more
        names = unrun.unread(model, calls.uncalled, [{"ids": torch.tensor([[1, 2]])}])
    return unrun.facts(model, names)


def test_what_was_not_run_is_named_once_and_what_is_read_is_not_named():
    assert observed(Model()) == [
        {"name": "tower", "parameters": 28, "one_of_several": False},
        {"name": "experts.0", "parameters": 20, "one_of_several": True},
        {"name": "experts.2", "parameters": 20, "one_of_several": True},
    ]


def test_a_list_of_which_nothing_ran_is_one_module():
    model = Model()
    model.spare = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    assert [fact["name"] for fact in observed(model) if "spare" in fact["name"]] == ["spare"]


def test_a_model_that_runs_whole_has_none():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    calls = unrun.Calls(model)
    model(torch.ones(1, 2))
    calls.stop()
    assert calls.uncalled == set()
    assert unrun.facts(model, set()) == []

"""process.calls: which functions of a real release ran."""

import inspect

import tiny
import torch
from samebits_probe.process.calls import Calls
from transformers import GenerationMixin
from transformers.models.llama import modeling_llama

FILE = "models/llama/modeling_llama.py"


def line(function):
    return inspect.unwrap(function).__code__.co_firstlineno


def test_what_a_forward_enters_is_listed_and_nothing_else():
    model = tiny.llama()
    calls = Calls()
    calls.begin()
    with torch.no_grad():
        model(torch.arange(4)[None])
    table = calls.table()
    entered = table[FILE]
    assert line(modeling_llama.LlamaMLP.forward) in entered
    assert line(modeling_llama.LlamaForCausalLM.forward) in entered
    assert line(modeling_llama.LlamaAttention.forward) in entered
    assert line(GenerationMixin.generate) not in table.get("generation/utils.py", [])


def test_generate_is_listed_once_it_ran():
    model = tiny.llama()
    calls = Calls()
    calls.begin()
    assert line(GenerationMixin.generate) not in calls.table().get("generation/utils.py", [])
    with torch.no_grad():
        model.generate(torch.arange(4)[None], max_new_tokens=2, do_sample=False)
    assert line(GenerationMixin.generate) in calls.table()["generation/utils.py"]


def test_a_branch_is_listed_when_it_is_taken():
    model = tiny.llama()
    calls = Calls()
    calls.begin()
    ids = torch.arange(4)[None]
    with torch.no_grad():
        model(ids)
        without = calls.table()[FILE]
        model(ids, labels=ids)
    (taken,) = set(calls.table()[FILE]) - set(without)
    source, first = inspect.getsourcelines(modeling_llama.LlamaForCausalLM.forward)
    assert "loss" in source[taken - first]


def test_torch_compiles_a_function_as_one_graph_as_if_it_had_no_marks():
    mlp = tiny.llama().model.layers[0].mlp
    compiled = torch.compile(mlp, fullgraph=True, backend="eager")
    x = torch.randn(1, 2, mlp.gate_proj.in_features)
    with torch.no_grad():
        assert torch.equal(compiled(x), mlp(x))

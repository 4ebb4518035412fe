"""Probes of the user's inside a stack: what they get, what may come back, and what they cannot do."""

import json
import math
import struct
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tiny
import torch
from samebits_probe.cell.phases import probes
from samebits_probe.jobs import ladder
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.probing import BadResult, taken_apart
from samebits_probe.model.tensor import Keeper
from samebits_probe.process import progress
from tiny import llama

POOLING = """
def pooling(model, inputs, torch):
    last = model(**inputs["short"], output_hidden_states=True).hidden_states[-1]
    return torch.nn.functional.normalize(last.mean(1), dim=-1)
"""


def file(source, name="mine", *, verdict=False):
    lines = [line for line in source.splitlines() if line.startswith("def ")]
    functions = [line[4:].partition("(")[0] for line in lines]
    return {"name": name, "source": source, "functions": functions, "verdict": verdict}


def session_of(*files, run="a", model=None):
    prompts = {"short": Inputs({"input_ids": torch.arange(6)[None]}, None, None)}
    session = tiny.session_of(model or llama(), prompts, run=run, limit=1 << 20, probes=list(files))
    session.loaded.tokenizer = "the tokenizer"
    return session


def answers(*files, run="a", model=None, seconds=math.inf):
    progress.begin("test")
    session = session_of(*files, run=run, model=model)
    given = probes.answers(session, session.loaded.model, seconds, probes._in_child)
    return json.loads(json.dumps(given))


def answer(source, function=None, **more):
    facts = answers(file(source), **more)["mine"]["answers"]
    return facts[function] if function else next(iter(facts.values()))


def problem(function, *arguments):
    try:
        function(*arguments)
    except BadResult as error:
        return str(error)
    return ""


def test_a_probe_gets_what_it_names():
    given = answer(
        "def all(torch, config, tokenizer, inputs, model, scale=2):\n"
        "    return [config is model.config, tokenizer, list(inputs), torch.__name__, scale,\n"
        "            torch.is_grad_enabled()]\n"
    )
    assert list(given["facts"].values()) == [True, "the tokenizer", "short", "torch", 2, False]


def test_the_pooling_is_that_of_the_model():
    model = llama()
    ref = answer(POOLING, model=model)["tensors"]["pooling"]
    with torch.no_grad():
        last = model(torch.arange(6)[None], output_hidden_states=True).hidden_states[-1]
    expected = torch.nn.functional.normalize(last.mean(1), dim=-1)
    assert ref["hash"] == Keeper(tempfile.mkdtemp(), 0, []).ref(expected)["hash"]
    assert ref["stored"]


def test_results_are_taken_apart_by_name():
    parts = taken_apart(
        "p", {"a": torch.ones(2), "b": [1, {"c": "x"}, ()], 3: None, "d": np.ones(2)}
    )
    assert list(parts.tensors) == ["p.a", "p.d"]
    assert parts.facts == {"p.b[0]": 1, "p.b[1].c": "x", "p.b[2]": [], "p[3]": None}
    assert parts.tensors["p.d"].dtype == torch.float64


def test_numbers_with_a_fraction_keep_their_bytes():
    payload = struct.unpack("=d", struct.pack("=Q", 0x7FF8000000000123))[0]
    for value in (0.1, -0.0, math.inf, payload):
        (tensor,) = taken_apart("p", value).tensors.values()
        assert struct.pack("=d", value) == bytes(tensor.reshape(1).view(torch.uint8).tolist())
    (tensor,) = taken_apart("p", np.float32(0.5)).tensors.values()
    assert tensor.item() == 0.5


def test_what_cannot_be_compared_says_what_to_return():
    assert "is of type set" in problem(taken_apart, "p", {"a": {1}})
    assert "key of type tuple" in problem(taken_apart, "p", {(1, 2): 1})
    assert "two parts of the result have the name p.a.b" in problem(
        taken_apart, "p", {"a": {"b": 1}, "a.b": 2}
    )
    assert "on the meta device" in problem(taken_apart, "p", torch.ones(1, device="meta"))
    assert "array of <U1" in problem(taken_apart, "p", np.array(["a"]))


def test_limits_of_a_result():
    deep = 1
    for _ in range(9):
        deep = [deep]
    assert "more than 8 dicts and lists" in problem(taken_apart, "p", deep)
    assert "more than 1,000" in problem(taken_apart, "p", list(range(1001)))
    assert "more than 256 MiB" in problem(
        taken_apart, "p", torch.empty((257 << 20,), dtype=torch.int8)
    )
    assert "longer than" in problem(taken_apart, "p", "a" * (2 << 20))
    endless = []
    endless.append(endless)
    assert "more than 8" in problem(taken_apart, "p", endless)


def test_an_exception_is_a_fact_with_the_line_of_the_file():
    failure = answer("\ndef a(model):\n    return model.nothing\n")["failure"]
    assert (failure["phase"], failure["type"]) == ("probe mine.a", "AttributeError")
    (frame,) = [frame for frame in failure["frames"] if frame["file"] == "mine.py"]
    assert (frame["line"], frame["code"]) == (3, "return model.nothing")
    nothing = answer("\n\ndef a(model):\n    if model is None:\n        return 1\n")["failure"]
    assert nothing["type"] == "BadResult"
    assert "a returned nothing" in nothing["message"]
    assert nothing["frames"][0]["line"] == 3


def test_a_file_that_cannot_be_imported_fails_each_of_its_probes():
    failure = answer("import no_such_package\ndef a(model):\n    return 1\n")["failure"]
    assert failure["type"] == "ModuleNotFoundError"
    assert failure["phase"] == "probe mine.a"


def test_a_process_that_dies_is_lost_and_the_next_probe_runs():
    given = answers(
        file("import os\ndef a():\n    os.kill(os.getpid(), 9)\ndef b():\n    return 1\n")
    )["mine"]["answers"]
    assert given["a"]["failure"]["type"] == "Lost"
    assert given["b"]["facts"] == {"b": 1}


def test_a_probe_changes_nothing_for_another_or_for_samebits():
    model = llama()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    source = (
        "def a(model, torch, inputs):\n"
        "    with torch.no_grad():\n"
        "        model.lm_head.weight.zero_()\n"
        "    inputs['short']['input_ids'].zero_()\n"
        "    model.config.hidden_size = 3\n"
        "    torch.set_default_dtype(torch.float64)\n"
        "    return 1\n"
        "def b(model, torch, inputs):\n"
        "    return [bool(model.lm_head.weight.any()), model.config.hidden_size,\n"
        "            int(inputs['short']['input_ids'].sum()), torch.get_default_dtype()]\n"
    )
    facts = answer(source, "b", model=model)["facts"]
    assert list(facts.values()) == [True, 16, 15, "torch.float32"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_random_numbers_differ_between_the_runs_and_not_by_the_order_of_probes():
    source = "import random\ndef a(torch):\n    return [torch.rand(2), random.random()]\n"
    twice = source + source.splitlines()[1].replace("a(", "b(") + "\n" + source.splitlines()[2]
    a, b = answer(source), answer(source, run="b")
    assert a["tensors"].keys() == b["tensors"].keys()
    assert not {ref["hash"] for ref in a["tensors"].values()} & {
        ref["hash"] for ref in b["tensors"].values()
    }
    later = answer(twice, "b")["tensors"]
    assert [ref["hash"] for ref in later.values()] == [r["hash"] for r in a["tensors"].values()]


def test_the_budget_leaves_out_only_what_informs():
    source = "def a():\n    return 1\n"
    counts, informs = file(source, "counts", verdict=True), file(source, "informs")
    given = answers(informs, counts, seconds=-1.0)
    assert list(given) == ["counts", "informs"]
    assert given["counts"]["answers"]["a"]["facts"] == {"a": 1}
    assert "raise budget:" in given["informs"]["answers"]["a"]["left_out"]


def test_only_a_file_of_the_matrix_makes_a_child():
    assert probes.untouched(session_of()) is None
    assert probes.untouched(session_of(file(POOLING))) is not None


def climb(source, model):
    """Return what the probes give on the float64 and float32 rungs."""
    bench = ladder.Ladder.__new__(ladder.Ladder)
    bench.job = {"task": {"probe_files": [file(source)], "rounded": {}, "tables": False}}
    bench.source = SimpleNamespace(device="cpu", dtype="bfloat16")
    bench.loaded = SimpleNamespace(model=model, tokenizer=None)
    bench.keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    bench._shares = False
    ids = {"input_ids": torch.arange(6)[None]}
    bench._prompts = lambda _: iter([("short", Inputs(dict(ids), None, None))])
    progress.begin("test")
    rungs = {}
    for dtype in (torch.float64, torch.float32):
        with torch.no_grad():
            given = bench._probes(bench._copy(dtype), dtype)
        rungs[dtype] = ladder._with_probes(ladder._empty_rung(), given)
    return rungs, bench.keeper


def test_a_probe_runs_again_in_float64():
    model = llama().to(torch.bfloat16)
    rungs, keeper = climb(POOLING, model)
    for dtype, rung in rungs.items():
        ref = rung["probes"]["mine"]["tensors"]["pooling"]
        assert (ref["dtype"], ref["stored"]) == (str(dtype).removeprefix("torch."), True)
        assert rung["leaks"] == []
        assert Path(keeper.root, ref["hash"][:2], f"{ref['hash']}.bin").exists()
    with torch.no_grad():
        exact = model.double()(torch.arange(6)[None], output_hidden_states=True).hidden_states[-1]
    expected = torch.nn.functional.normalize(exact.mean(1), dim=-1)
    ref = rungs[torch.float64]["probes"]["mine"]["tensors"]["pooling"]
    path = Path(keeper.root, ref["hash"][:2], f"{ref['hash']}.bin")
    values = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float64)
    assert torch.allclose(values, expected.flatten(), atol=1e-6, rtol=0)


def test_a_probe_that_refuses_float64_is_noted():
    rungs, _ = climb("def a(model):\n    raise ValueError('not here')\n", llama())
    for rung in rungs.values():
        assert rung["refused"] == {"probe mine.a": "NoAnswer: ValueError: not here"}

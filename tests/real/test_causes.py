"""The cause that two traces of a real stack give is the one that was planted."""

import json
from functools import partial
from pathlib import Path

import pytest

from samebits.records.trace import Trace
from samebits.storage.store import Store
from samebits.trace import blame
from samebits.trace.replay import closer
from samebits_wire import seal

HERE = Path(__file__).parent
PROBES = HERE.parents[1] / "probes"
PAIRS = {
    "weight": ("", "float32"),
    "inv_freq": ("", "float32"),
    "mask": ("", "float32"),
    "scale": ("", "float32"),
    "softmax": ("softmax-float32", "bfloat16"),
    "kernel": ("", "float32"),
    "sum": ("", "float32"),
    "window-1": ("window", "float32"),
    "cap": ("kernel", "float32"),
    "side-by-side": ("by-turns", "float32"),
}
"""What is planted -> what the reference has, and the dtype."""


class Bench:
    """Traces a planted model in one stack."""

    def __init__(self, run, folder):
        self.run, self.folder = run, folder
        self.store = Store(folder)

    def trace(self, *orders):
        told = [
            {
                "defect": defect,
                "dtype": dtype,
                "look": list(look),
                "stack": side,
                "root": str(self.folder),
                "result": str(self.folder / f"{place}-{side}-{defect}.json"),
            }
            for place, (side, defect, dtype, look) in enumerate(orders)
        ]
        asked = self.folder / "orders.json"
        asked.write_text(json.dumps(told))
        script = HERE / "planted" / "trace_plants.py"
        self.run(script, PROBES, asked)
        return [Trace.model_validate_json(seal.read(Path(o["result"]))) for o in told]


@pytest.fixture(scope="module", params=["4.48", "5.x"])
def causes(request, run_script, tmp_path_factory):
    """Return the cause of every pair, with the closer look at it."""
    folder = tmp_path_factory.mktemp("causes")
    bench = Bench(partial(run_script, request.param), folder)
    names = list(PAIRS)
    orders = []
    for name in names:
        reference, dtype = PAIRS[name]
        orders += [("old", reference, dtype, ()), ("new", name, dtype, ())]
    traces = bench.trace(*orders)
    blamed = {n: blame.blame(traces[2 * i], traces[2 * i + 1]) for i, n in enumerate(names)}
    assert all(blamed.values()), blamed
    looks = []
    for name in names:
        reference, dtype = PAIRS[name]
        there, here = blamed[name].looks
        looks += [("old", reference, dtype, there), ("new", name, dtype, here)]
    closely = bench.trace(*looks)
    found = {}
    for i, name in enumerate(names):
        pair = closely[2 * i], closely[2 * i + 1]
        found[name] = closer(blame.cause(blamed[name]), blamed[name], *pair, bench.store)
    return found, bench


def test_a_clean_pair_has_no_cause_and_tracing_changes_no_bit(causes):
    one, other = causes[1].trace(("old", "", "float32", ()), ("new", "", "float32", ()))
    assert blame.blame(one, other) is None
    assert one.effect == other.effect == "none"
    assert len(one.ops) > 50


def test_one_element_of_one_weight(causes):
    cause = causes[0]["weight"]
    assert cause.kind == "weight"
    assert cause.candidate.tensor == "model.layers.1.mlp.down_proj.weight"
    assert cause.reference.tensor == cause.candidate.tensor
    assert any("in 1 of 1,536 elements" in line for line in cause.evidence)
    assert cause.sink == "model.layers.1"


def test_one_ulp_of_one_inv_freq_entry(causes):
    cause = causes[0]["inv_freq"]
    assert cause.kind == "buffer"
    assert cause.candidate.tensor == "model.rotary_emb.inv_freq"
    assert any("in 1 of 4 elements" in line for line in cause.evidence)


@pytest.mark.parametrize("name", ["mask", "window-1"])
def test_a_mask_that_is_off_by_one(causes, name):
    cause = causes[0][name]
    assert cause.kind == "mask", cause
    assert any("in seen (planted_attention.py" in line for line in cause.evidence)
    sees = (
        "does not see key 1 in the reference and sees it in the candidate"
        if name == "mask"
        else "query 3 sees key 0"
    )
    assert sees in cause.evidence[0]


def test_a_scale_factor_of_1_0001(causes):
    cause = causes[0]["scale"]
    assert cause.kind == "argument"
    assert cause.candidate.function == "scores_of"
    assert cause.candidate.op.startswith("mul")
    assert "the difference starts in this operation" in cause.replay


def test_softmax_in_bfloat16(causes):
    cause = causes[0]["softmax"]
    assert cause.kind == "precision"
    assert cause.candidate.function == "weights_of"


def test_another_kernel(causes):
    cause = causes[0]["kernel"]
    assert cause.kind == "kernel"
    assert "scaled_dot_product" in cause.candidate.op
    assert cause.candidate.function == "attention"
    assert cause.reference.function == "scores_of"


def test_a_cap_of_the_scores_that_no_kernel_knows(causes):
    cause = causes[0]["cap"]
    assert cause.kind == "operation"
    assert cause.candidate.op.startswith("tanh")
    assert cause.candidate.function == "capped"
    assert "scaled_dot_product" in cause.reference.op


def test_heads_that_are_repeated_in_another_order(causes):
    cause = causes[0]["side-by-side"]
    assert cause.kind == "layout"
    assert cause.candidate.function == cause.reference.function == "spread"
    assert "in summed" in cause.evidence[0]


def test_a_sum_in_another_order(causes):
    cause = causes[0]["sum"]
    assert cause.kind in {"shape", "operation"}
    assert cause.candidate.function == cause.reference.function == "summed"


def test_what_is_blamed_differs_by_itself(causes):
    operations = {name for name, cause in causes[0].items() if cause.candidate.op}
    begins = "the difference starts in this operation"
    starting = {name for name, cause in causes[0].items() if begins in cause.replay}
    given = {name for name, cause in causes[0].items() if "in what it is given" in cause.replay}
    assert given == {name for name, cause in causes[0].items() if cause.kind == "mask"}
    assert starting == operations - given - {"side-by-side"}
    assert causes[0]["side-by-side"].replay == ""  # layout computes nothing

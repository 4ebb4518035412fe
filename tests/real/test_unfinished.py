"""Models that hang, spin, raise or are killed in the middle: what was observed before is compared.

Each fault shows in the newer release alone, and its clean twin is the same model without it.
"""

import json

import numpy as np
import pytest

from samebits.storage.store import Store
from tests.real.conftest import NEW, OLD, write_safetensors

pytestmark = pytest.mark.long  # for changes of budgets; tests/faults has false stacks

TIMEOUT = 6
FIRST = "os.open(os.path.join({folder!r}, 'flag'), os.O_CREAT | os.O_EXCL)"
"""Raises in every process but the first."""
FAULTS = {
    "sleeps": f"{FIRST} and time.sleep(600)",
    "spins": f"{FIRST} and spin()",
    "greedy-raises": "'generate' in functions() and 1 / 0",
    "killed-in-relations": "'relations/relations' in callers() and os.kill(os.getpid(), 9)",
    "hangs-in-usage": "'usage/forward' in callers() and time.sleep(600)",
    "slow": "time.sleep(1)",
}
"""What a forward does before anything else, in the newer release."""
MORE = {
    "healthy": "relations: true",
    "killed-in-relations": "relations: true",
    "slow": "relations: true, usage: false",
}
CODE = """
import inspect, os, time
import transformers
from transformers import LlamaForCausalLM

def spin():
    while True:
        pass

def callers():
    return {"/".join(f.filename.split("/")[-2:])[:-3] for f in inspect.stack(0)}

def functions():
    return {f.function for f in inspect.stack(0)}

class FaultyForCausalLM(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        if int(transformers.__version__.split(".")[0]) >= 5:
            try:
                FAULT
            except FileExistsError:
                pass
        return super().forward(*args, **kwargs)
"""
CONFIG = {
    "architectures": ["FaultyForCausalLM"],
    "auto_map": {"AutoModelForCausalLM": "modeling_faulty.FaultyForCausalLM"},
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "eos_token_id": None,
}


def shapes():
    yield from {"model.embed_tokens.weight": (64, 32), "lm_head.weight": (64, 32)}.items()
    yield "model.norm.weight", (32,)
    for layer in ("model.layers.0", "model.layers.1"):
        yield from ((f"{layer}.self_attn.{name}_proj.weight", (32, 32)) for name in "qkvo")
        yield from ((f"{layer}.mlp.{name}_proj.weight", (48, 32)) for name in ("gate", "up"))
        yield f"{layer}.mlp.down_proj.weight", (32, 48)
        for name in ("input", "post_attention"):
            yield f"{layer}.{name}_layernorm.weight", (32,)


def model(folder, fault):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    code = CODE.replace("FAULT", fault.format(folder=str(folder)))
    (folder / "modeling_faulty.py").write_text(code)
    generator = np.random.default_rng(0)
    tensors = {name: generator.normal(0, 0.3, shape) for name, shape in shapes()}
    write_safetensors(
        folder / "model.safetensors", {n: t.astype(np.float32) for n, t in tensors.items()}
    )
    return folder


@pytest.fixture(scope="module")
def ran(run_in, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unfinished")
    lines = [
        f'environments: ["{OLD}", "{NEW}"]',
        "defaults:",
        f"  timeout: {TIMEOUT}",
        "  greedy: 3",
    ]
    lines += ["  questions: [usage]", "  prompts:"]
    lines += ["    short: {length: 9}", "    other: {length: 5}", "models:"]
    for name, fault in {"healthy": "None", **FAULTS}.items():
        path = model(folder / name, fault)
        more = f", {MORE[name]}" if name in MORE else ""
        lines.append(f"  {name}: {{path: '{path}', trust_remote_code: true{more}}}")
    (folder / "matrix.yaml").write_text("\n".join(lines))
    report = run_in(folder)
    cells = {(row.model, cell.cell.stack): cell for row in report.rows for cell in row.cells}
    return cells, folder / ".samebits"


def captures(ran, name, stack=NEW):
    root = ran[1]
    paths = sorted((root / "captures" / name).glob(f"*/{stack}/*/[ab].json"))
    return [Store(root).read_capture(path) for path in paths]


def signal(cell, name):
    return next(s for s in cell.signals if s.signal == name)


@pytest.mark.parametrize("name", ["healthy", *FAULTS])
def test_the_release_without_the_fault_is_sound(ran, name):
    assert ran[0][name, OLD].verdict == "reference"
    assert [c.status for c in captures(ran, name, OLD)] == ["complete"] * 2


def test_the_clean_twin_is_identical(ran):
    assert ran[0]["healthy", NEW].verdict == "identical"
    first, second = captures(ran, "healthy")
    assert (first.failures, second.failures) == ((), ())
    assert {"relations", "usage"} <= first.signals.answers.keys()
    assert signal(ran[0]["healthy", NEW], "decode").outcome == "identical"


@pytest.mark.parametrize(
    ("name", "words"), [("sleeps", "it used no CPU: it waits"), ("spins", "it computes")]
)
def test_a_forward_that_never_ends_is_ended_and_the_weights_are_compared(ran, name, words):
    cell = ran[0][name, NEW]
    assert cell.verdict == "not finished"
    assert cell.unfinished.phase == "forward short"
    # the first forward of run a is plain, and of run b watched: either may be the one that hangs
    assert cell.unfinished.step in {"plain", "layers watched"}
    assert cell.unfinished.reason.startswith("no progress for ")
    assert words in cell.unfinished.reason
    assert signal(cell, "weights").outcome == "identical"
    assert sorted(c.status for c in captures(ran, name)) == ["complete", "unfinished"]


def test_a_run_that_is_killed_where_nothing_makes_a_verdict_has_its_verdict(ran):
    cell = ran[0]["killed-in-relations", NEW]
    assert cell.verdict == "identical"
    assert signal(cell, "decode").outcome == "identical"
    first, second = captures(ran, "killed-in-relations")
    assert (first.status, second.status) == ("unfinished", "complete")
    assert first.unfinished.phase == "relations"
    assert set(first.signals.greedy) == set(second.signals.greedy) == {"short", "other"}


def test_a_phase_that_raises_fails_alone(ran):
    cell = ran[0]["greedy-raises", NEW]
    assert cell.verdict == "failed"
    assert cell.rest == "identical"
    assert signal(cell, "logits").outcome == "identical"
    for capture in captures(ran, "greedy-raises"):
        assert capture.status == "complete"
        assert [f.phase for f in capture.failures] == ["greedy short", "greedy other"]
        assert {f.type for f in capture.failures} == {"ZeroDivisionError"}
        reasons = {skip.what: skip.reason for skip in capture.skips}
        said = "failed in phase greedy short: ZeroDivisionError: division by zero"
        assert reasons["greedy short"] == said


def test_what_hangs_around_the_model_costs_no_more_than_that(ran):
    assert ran[0]["hangs-in-usage", NEW].verdict == "identical"
    first, second = captures(ran, "hangs-in-usage")
    assert (first.status, second.status) == ("complete", "complete")
    assert "usage" not in first.signals.answers
    assert first.signals.integrity is not None
    (told,) = (skip for skip in first.skips if skip.what == "usage")
    assert told.why == "instrument"
    assert "no progress for " in told.reason
    assert "in phase usage" in told.reason


def test_a_model_that_is_slow_and_works_finishes(ran):
    """Every forward takes a second, all of them several times the limit, and generate() is one step."""
    assert ran[0]["slow", NEW].verdict == "identical"
    first, _ = captures(ran, "slow")
    assert first.status == "complete"
    assert sum(first.seconds.values()) > 2 * TIMEOUT
    (told,) = (skip for skip in first.skips if skip.what == "relations")
    assert told.why == "cost"
    assert "of the budget of 600 s are used: raise budget:" in told.reason

"""First weights of new models over releases: planted rules of custom code are named, and a clean one is not."""

import pytest

pytestmark = pytest.mark.long

PLANTS = {"clean": "", "misses": "misses", "unwritten": "unwritten"}
MATRIX = """
environments: ["4.57", "5.2"]
defaults: {dtypes: [float32], greedy: 0, questions: [first_weights, other_classes],
  prompts: {short: {length: 9}}}
models:
  gpt2: {build: {architecture: gpt2, config: {vocab_size: 99, n_embd: 48, n_layer: 3, n_head: 4,
    n_positions: 64, eos_token_id: null}}}
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("initial")
    fields = {"initializer_range": 0.3}
    models = {n: ("InitialForCausalLM", fields | {"plant": p}) for n, p in PLANTS.items()}
    autos = {"InitialForCausalLM": "AutoModelForCausalLM"}
    save_planted(folder, "modeling_initial", "4.57", autos, models, MATRIX)
    report = run_in(folder)
    return {c.cell.model: c for row in report.rows for c in row.cells if c.cell.stack == "5.2"}


def named(cell):
    return {f.code: f for f in cell.findings if f.code in {"SB320", "SB321"}}


def test_a_clean_rule_is_not_accused(cells):
    assert cells["clean"].verdict == "identical", cells["clean"].headline
    assert not named(cells["clean"])


def test_a_rule_that_misses_a_module_is_named_with_both_scales(cells):
    assert cells["misses"].verdict == "identical", cells["misses"].headline
    found = named(cells["misses"])
    assert found.keys() == {"SB320"}
    said = "\n".join(found["SB320"].evidence)
    assert "mix.weight, head.weight" in said
    assert "which is config.initializer_range; InitialForCausalLM._init_weights" in said
    assert "drawn uniformly, std 0.1" in said


def test_unwritten_memory_of_a_new_model_is_named(cells):
    found = named(cells["unwritten"])
    assert found.keys() == {"SB321"}
    assert "scale: 32 elements of uninitialised memory" in found["SB321"].evidence[0]


def test_gpt2_lost_the_factor_of_its_depth(cells):
    found = named(cells["gpt2"])
    assert found.keys() == {"SB320"}
    said = "\n".join(found["SB320"].evidence)
    assert "attn.c_proj.weight, transformer.h.*.mlp.c_proj.weight" in said
    assert "4.57: drawn, std 0.008" in said
    assert "5.2: drawn, std 0.02, which is config.initializer_range" in said

"""Models saved by one real stack and loaded by the other: known losses, and clean ones beside."""

import json

import pytest

from samebits.questions.crossings.records import crossed
from samebits.questions.crossings.rules import RULES

pytestmark = pytest.mark.long  # for changes of questions/crossings

TINY = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": None}
HEADS = {"intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
MAMBA = {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}
MAMBA |= {"pad_token_id": 1, "bos_token_id": 0}


def build(architecture, **config):
    return {"build": {"architecture": architecture, "seed": 1, "config": config}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, planted):
    made = tmp_path_factory.mktemp("crossings")
    custom = {"path": str(planted("none")), "trust_remote_code": True}
    models = {
        "llama": build("llama", **TINY, **HEADS, rope_theta=5e5),
        "llama-default": build("llama", **TINY, **HEADS, rope_theta=1e4),
        "mamba2": build("mamba2", **TINY, **MAMBA),
        "mamba2-finite": build("mamba2", **TINY, **MAMBA, time_step_limit=[0.0, 8.0]),
        "gpt2": build("gpt2", vocab_size=64, n_embd=32, n_layer=2, n_head=4),
        "qwen3": build("qwen3", **TINY, **HEADS, head_dim=8),
        "custom": custom,
        "left-out": custom | {"save_load": False},
    }
    defaults = {"greedy": 0, "prompts": {"short": {"length": 9}}}
    defaults["questions"] = ["usage", "save_load"]
    matrix = {"environments": ["4.48", "5.x"], "defaults": defaults, "models": models}
    (made / "matrix.yaml").write_text(json.dumps(matrix))
    return made


@pytest.fixture(scope="module")
def crossings(report):
    models = crossed(report.rows)
    return {(m, c.saver, c.loader): c for m, answer in models.items() for c in answer.crossings}


def outcomes(crossings, model):
    return {key[1:]: c.outcome for key, c in crossings.items() if key[0] == model}


@pytest.mark.parametrize("model", ["gpt2", "llama-default", "mamba2-finite", "custom"])
def test_what_loses_nothing_comes_back_in_every_pair(crossings, model):
    assert set(outcomes(crossings, model).values()) == {"same bits"}
    assert len(outcomes(crossings, model)) == 4
    for key, crossing in crossings.items():
        if key[0] == model:
            assert crossing.logits == "same bits"
            assert (crossing.config, crossing.tensors, crossing.unsteady) == ((), (), ())


def test_rope_theta_that_5_saved_is_lost_in_4(crossings):
    found = outcomes(crossings, "llama")
    assert found.pop(("5.x", "4.48")) == "differs"
    assert set(found.values()) == {"same bits"}
    lost = crossings["llama", "5.x", "4.48"]
    assert lost.config == ("rope_theta: 500000.0 → 10000.0",)
    assert lost.tensors == ("model.rotary_emb.inv_freq",)
    assert "rope_parameters.rope_theta" in lost.ignored
    assert lost.logits == "differs"
    assert lost.logits_max_abs > 1e-3


def test_an_infinite_limit_that_5_saved_crashes_the_forward_of_4(crossings):
    found = outcomes(crossings, "mamba2")
    assert found.pop(("5.x", "4.48")) == "forward failed"
    assert set(found.values()) == {"same bits"}
    crash = crossings["mamba2", "5.x", "4.48"]
    assert (crash.failure.phase, crash.failure.type) == ("forward", "TypeError")
    assert "clamp()" in crash.failure.message
    assert any("time_step_limit" in change for change in crash.config)


def test_a_model_that_4_does_not_know_is_absent_there(crossings):
    found = outcomes(crossings, "qwen3")
    assert found.pop(("5.x", "5.x")) == "same bits"
    assert set(found.values()) == {"absent"}
    assert all("qwen3" in c.reason for key, c in crossings.items() if c.outcome == "absent")


def test_what_is_left_out_does_not_cross(crossings):
    assert outcomes(crossings, "left-out") == {}


def test_a_loss_makes_no_verdict(report):
    (row,) = (row for row in report.rows if row.model == "llama")
    assert {cell.verdict for cell in row.cells} == {"reference", "identical"}
    assert not [reason for reason in report.reasons if "llama" in reason]


def test_no_folder_of_this_machine_is_in_it(report, folder):
    text = "".join(found.model_dump_json() for found in crossed(report.rows).values())
    assert str(folder) not in text
    assert ".samebits" not in text


def test_the_second_run_runs_nothing_and_says_the_same(report, folder, run_in):
    def written():
        found = [*folder.glob(".samebits/crossings/**/*"), *folder.glob(".samebits/saved/**/*")]
        return {path: path.stat().st_mtime_ns for path in found if path.is_file()}

    before = written()
    assert crossed(run_in(folder).rows) == crossed(report.rows)
    assert written() == before
    assert not [path for path in before if path.suffix in {".tmp", ".imports"}]


CODES = {rule.code for rule in RULES}


def of_crossings(cell):
    """Yield the codes of what is lost between two releases; those of other questions have tests of their own."""
    return (finding.code for finding in cell.findings if finding.code in CODES)


@pytest.mark.parametrize(("model", "code"), [("llama", "SB203"), ("mamba2", "SB204")])
def test_a_loss_is_named_where_it_shows(report, model, code):
    (row,) = [row for row in report.rows if row.model == model]
    old, new = row.cells
    assert [*of_crossings(old)] == [code]
    assert [*of_crossings(new)] == []


@pytest.mark.parametrize("model", ["gpt2", "llama-default", "mamba2-finite", "custom"])
def test_what_loses_nothing_has_no_finding(report, model):
    (row,) = [row for row in report.rows if row.model == model]
    assert not any([*of_crossings(cell)] for cell in row.cells)

"""One training step over releases: planted defects of custom code are found, their twin is not.

Models of the library show what releases do: mixtral's router loss, and losses of t5 and mamba that
Trainer takes for losses by num_items_in_batch.
"""

import pytest

from samebits import questions
from samebits.questions import training
from samebits.questions.training.records import steps_of
from samebits.reports import document
from tests.real.conftest import SMALL_LLAMA

pytestmark = pytest.mark.long  # for changes of questions/training

PLANTS = {
    "clean": "",
    "shifted": "shift",
    "per-row": "rows",
    "ignored": "ignored",
    "items": "items",
    "tied": "tied",
    "router": "router",
    "redraw": "redraw",
    "drops": "dropout",
    "redrop": "redrop",
}
DROPPING = ("drops", "redrop")
"""Those with a dropout in their config."""
MATRIX = """
environments: ["4.57", "5.2"]
defaults: {dtypes: [float32], greedy: 0, questions: [training],
  prompts: {short: {length: 9}}}
models:
  mixtral: {build: {architecture: mixtral, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2, num_local_experts: 4,
    num_attention_heads: 4, num_key_value_heads: 2, eos_token_id: null}}}
  gpt2: {build: {architecture: gpt2, config: {
    vocab_size: 99, n_embd: 48, n_layer: 2, n_head: 4, n_positions: 64, eos_token_id: null}}}
  bert: {build: {architecture: bert, head: masked-lm, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2, num_attention_heads: 4}}}
  t5: {build: {architecture: t5, head: seq2seq-lm, config: {
    vocab_size: 99, d_model: 48, d_kv: 12, d_ff: 80, num_layers: 2, num_heads: 4, decoder_start_token_id: 0}}}
  mamba: {build: {architecture: mamba, config: {
    vocab_size: 99, hidden_size: 32, state_size: 8, num_hidden_layers: 2, eos_token_id: null}}}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("training")
    small = SMALL_LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True}
    models = {
        name: (
            "PlantedForCausalLM",
            small | {"plant": plant, "attention_dropout": 0.2 if name in DROPPING else 0.0},
        )
        for name, plant in PLANTS.items()
    }
    autos = {"PlantedForCausalLM": "AutoModelForCausalLM"}
    save_planted(folder, "modeling_training", "4.48", autos, models, MATRIX)
    with pytest.MonkeyPatch.context() as patch:  # test_trainer.py has Trainer's runs
        patch.setattr(questions, "QUESTIONS", (training.QUESTION,))
        return run_in(folder)


@pytest.fixture(scope="module")
def trained(report):
    return {(row.model, stack): t for row in report.rows for stack, t in steps_of(row).items()}


@pytest.fixture(scope="module")
def codes(report):
    return {
        (cell.cell.model, cell.cell.stack): {
            f.code for f in cell.findings if f.code.startswith("SB84")
        }
        for row in report.rows
        for cell in row.cells
    }


def broken(report):
    """Return the broken ways to train by the model itself; test_trainer.py has Trainer's."""
    relations = report.relations.relations if report.relations else ()
    return {relation.relation for relation in relations if relation.broken}


@pytest.mark.parametrize("model", ["clean", "gpt2", "drops"])
def test_a_clean_model_is_not_accused(trained, codes, model):
    new = trained[model, "5.2"]
    assert new.failure is None, new.failure
    assert new.losses, new.reason
    assert new.comparison.standing in ("identical", "rounding"), new.comparison
    for stack in ("4.57", "5.2"):
        assert not broken(trained[model, stack])
        assert not codes[model, stack]


FORMULAS = {
    "shifted": "mean over the labels, the same token",
    "per-row": "mean of the means of rows, the next token",
    "ignored": "mean over all positions, the next token",
}


@pytest.mark.parametrize("model", FORMULAS)
def test_a_planted_loss_is_named_with_its_formula(trained, codes, model):
    new = trained[model, "5.2"]
    assert new.comparison.standing == "diverged"
    assert new.comparison.first.signal == "loss"
    assert new.formulas["padded"] == FORMULAS[model]
    assert "SB841" in codes[model, "5.2"]
    assert not codes[model, "4.57"]


def test_a_loss_that_ignores_the_number_of_items_is_found_twice(trained, codes):
    new = trained["items", "5.2"]
    assert {"SB841", "SB843"} <= codes["items", "5.2"]
    assert new.losses["padded"] == trained["items", "4.57"].losses["padded"]
    assert "rows accumulated = one batch" in broken(new)


def test_a_gradient_that_misses_a_tied_half_is_found(trained, codes):
    new = trained["tied", "5.2"]
    assert new.losses == trained["tied", "4.57"].losses
    assert new.comparison.first.signal == "gradients"
    assert "embed_tokens" in new.comparison.first.tensor
    assert codes["tied", "5.2"] == {"SB842"}


def test_a_router_loss_that_is_left_out_is_found(trained, codes):
    new = trained["router", "5.2"]
    assert new.comparison.first.batch == "router"
    assert codes["router", "5.2"] == {"SB841"}


def test_a_checkpointed_block_that_draws_again_is_found(trained, codes):
    assert trained["redraw", "5.2"].comparison.standing in ("identical", "rounding")
    assert "gradient checkpointing = without" in broken(trained["redraw", "5.2"])
    assert codes["redraw", "5.2"] == {"SB844"}


def test_a_checkpointed_block_that_draws_its_dropout_again_is_found(trained, codes):
    assert broken(trained["redrop", "5.2"]) == {"gradient checkpointing with dropout = without"}
    assert codes["redrop", "5.2"] == {"SB840", "SB844"}, "it also drops what the reference keeps"
    assert not codes["redrop", "4.57"]


def test_mixtral_takes_the_softmax_of_its_router_twice(trained, codes):
    """5.2 returns probabilities as router_logits, of which the router loss takes the softmax."""
    new = trained["mixtral", "5.2"]
    assert new.comparison.first.batch == "router"
    assert {item.signal for item in new.comparison.items if item.outcome == "diverged"} <= {
        "loss",
        "other losses",
        "norm",
    }
    assert codes["mixtral", "5.2"] == {"SB841"}


def test_losses_that_take_any_argument_and_ignore_it_are_found(trained, codes):
    """Trainer divides no loss of a forward with ``**kwargs``: t5 and bert have them from 5.0 on."""
    name = "rows accumulated = one batch"
    for model, stacks in (("t5", {"5.2"}), ("bert", {"5.2"}), ("mamba", {"4.57", "5.2"})):
        for stack in ("4.57", "5.2"):
            report = trained[model, stack]
            assert broken(report) == ({name} if stack in stacks else set())
            assert codes[model, stack] == ({"SB843"} if stack in stacks else set())
        assert trained[model, "5.2"].comparison.standing in ("identical", "rounding")


def test_gradients_of_fused_experts_are_compared_one_by_one(trained):
    old, new = trained["mixtral", "4.57"], trained["mixtral", "5.2"]
    assert old.n_gradients == new.n_gradients
    assert "not compared" not in new.comparison.counts


def test_training_makes_no_verdict_and_the_report_has_it(report):
    verdicts = {c.cell.model: c.verdict for row in report.rows for c in row.cells if c.reference}
    assert verdicts["shifted"] in ("identical", "rounding")
    section = document.render(report)["relations.md"].partition("## Training")[2]
    assert "loss: padded" in section
    assert "gradient checkpointing = without" in section

"""Where a training step of real releases diverges, its first operation is named with its line.

Planted defects of custom code, their clean twin, and what releases changed in losses.
"""

import re

import pytest

from samebits import questions
from samebits.questions import training
from samebits.questions.training.records import steps_of
from samebits.reports import document
from tests.real.conftest import PLANTED, SMALL_LLAMA

pytestmark = (
    pytest.mark.long
)  # for changes of questions/training/origin.py and of how a step is traced

PLANTS = {"clean": "", "slope": "slope", "unmasked": "unmasked", "tied": "tied"}
MATRIX = """
environments: ["4.57", "5.2", "5.x"]
defaults: {dtypes: [float32], greedy: 0, questions: [training],
  prompts: {short: {length: 9}}}
exclude:
  - {model: [clean, slope, unmasked, tied], environment: "5.2", reason: one newer release is enough}
models:
  mixtral: {build: {architecture: mixtral, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2, num_local_experts: 4,
    num_attention_heads: 4, num_key_value_heads: 2, eos_token_id: null}}}
  mamba: {build: {architecture: mamba, config: {
    vocab_size: 99, hidden_size: 32, state_size: 8, num_hidden_layers: 2, eos_token_id: null}}}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("backward")
    small = SMALL_LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True}
    small |= {"intermediate_size": 56}
    models = {n: ("BackwardForCausalLM", small | {"plant": p}) for n, p in PLANTS.items()}
    autos = {"BackwardForCausalLM": "AutoModelForCausalLM"}
    save_planted(folder, "modeling_backward", "4.48", autos, models, MATRIX)
    with pytest.MonkeyPatch.context() as patch:  # test_trainer.py has Trainer's runs
        patch.setattr(questions, "QUESTIONS", (training.QUESTION,))
        return run_in(folder)


@pytest.fixture(scope="module")
def compared(report):
    return {
        (row.model, stack): training.comparison
        for row in report.rows
        for stack, training in steps_of(row).items()
    }


def line_of(text):
    """Return the number of the only line of the planted code with a text."""
    lines = (PLANTED / "modeling_backward.py").read_text("utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if text in line]
    return f"modeling_backward.py:{number}"


def test_a_clean_step_has_no_origin(compared):
    comparison = compared["clean", "5.x"]
    assert comparison.standing in ("identical", "rounding"), comparison
    assert comparison.origin is None
    assert not comparison.no_origin


def test_a_wrong_backward_is_named_with_its_line(compared):
    comparison = compared["slope", "5.x"]
    assert comparison.standing == "diverged", comparison
    origin = comparison.origin
    assert origin is not None, comparison.no_origin
    assert (origin.part, origin.only_in, origin.rung) == ("backward", "candidate", "float64")
    assert origin.side.node == "SquaredBackward"
    assert origin.side.forward == "mul.Tensor"
    assert origin.side.module == "model.layers.1.mlp.act_fn"
    assert origin.side.function == "Squared.backward"
    assert origin.side.source == line_of("gradient * ctx.slope")
    assert origin.counterpart.source == origin.side.source
    assert (origin.side.arguments, origin.counterpart.arguments) == ("%, 3.0", "%, 2.0")


def test_labels_that_are_no_longer_ignored_are_named(compared):
    origin = compared["unmasked", "5.x"].origin
    assert (origin.part, origin.sink, origin.only_in) == ("loss", "loss", "candidate")
    assert origin.side.op == "nll_loss_forward.default"
    assert origin.side.function == "loss_of"
    assert origin.side.source == line_of("nn.functional.cross_entropy")
    assert "the other side has no int64[4, 11]" in origin.evidence[0]


def test_the_half_that_a_tied_gradient_misses_is_named(compared):
    origin = compared["tied", "5.x"].origin
    assert (origin.part, origin.only_in) == ("backward", "reference")
    assert origin.side.stack == "4.57"
    assert (origin.side.node, origin.side.op) == ("MmBackward0", "mm.default")
    assert origin.side.module == "lm_head"
    assert "embed_tokens" in origin.sink


def test_the_softmax_that_mixtral_takes_twice_is_named(compared):
    """5.2 returns probabilities as router_logits, of which the router loss takes the softmax."""
    origin = compared["mixtral", "5.2"].origin
    assert origin.batch == "router"
    assert (origin.part, origin.side.op) == ("loss", "_softmax.default")
    assert origin.side.function == "load_balancing_loss_func"
    assert re.fullmatch(r".*modeling_mixtral\.py:\d+", origin.side.source)
    assert compared["mixtral", "5.x"].origin is None


def test_a_loss_that_begins_to_divide_is_named(compared):
    """mamba calls the shared loss in 5.23, which divides by num_items_in_batch."""
    origin = compared["mamba", "5.x"].origin
    assert origin.batch == "items"
    assert origin.part == "loss"
    assert origin.side.function == "fixed_cross_entropy"
    assert origin.side.op == origin.counterpart.op == "nll_loss_forward.default"
    assert origin.counterpart.function == "MambaForCausalLM.forward"
    assert not origin.evidence  # one more label per row, which is ignored, is no difference
    assert compared["mamba", "5.2"].origin is None


def test_labels_of_the_reference_restore_its_step(compared):
    comparison = compared["unmasked", "5.x"]
    assert comparison.graft is not None, comparison.no_graft
    assert (comparison.graft.smallest, comparison.graft.proof) == (("labels",), "alone")
    assert comparison.graft.others == ("loss function",)


def test_the_number_of_items_restores_the_step_of_mamba(compared):
    comparison = compared["mamba", "5.x"]
    assert comparison.graft is not None, comparison.no_graft
    assert comparison.graft.smallest == ("num_items_in_batch",)


def test_no_piece_of_cross_entropy_restores_the_router_loss(compared):
    """It is a loss of its own, of logits that do not come back as logits."""
    assert not compared["mixtral", "5.2"].graft.smallest


@pytest.mark.parametrize("model", ["clean", "slope", "tied"])
def test_only_a_loss_is_grafted(compared, model):
    comparison = compared[model, "5.x"]
    assert comparison.graft is None
    assert not comparison.no_graft


def test_the_report_has_the_operation(report):
    pages = document.render(report)
    section = pages["relations.md"].partition("## Training")[2]
    assert "SquaredBackward" in section
    findings = [f for row in report.rows for cell in row.cells for f in cell.findings]
    evidence = " ".join(line for f in findings if f.code == "SB842" for line in f.evidence)
    assert "it begins in the backward with mul.Tensor of SquaredBackward" in evidence

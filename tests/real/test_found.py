"""Losses of boxes, prompts of boxes and embeddings over releases: planted differences are found, their twins are not."""

import pytest

from samebits.questions.training.records import steps_of

PLANTS = {
    "detector": ("FoundForObjectDetection", ""),
    "loss": ("FoundForObjectDetection", "loss"),
    "boxes": ("FoundForObjectDetection", "boxes"),
    "llama": ("EmbeddedForCausalLM", ""),
    "embeddings": ("EmbeddedForCausalLM", "embeddings"),
}
MATRIX = """
stacks: ["4.57", "5.2"]
defaults: {dtypes: [float32], greedy: 0, questions: [relations, training],
  prompts: {short: {length: 9}}}
models:
"""
SAVE = """
import sys, torch
folder = sys.argv[1]
sys.path.insert(0, folder)
import modeling_found
for part in sys.argv[2:]:
    name, kind, plant = part.split("=")
    torch.manual_seed(0)
    sizes = {"num_labels": 3} if kind.startswith("Found") else dict(vocab_size=99, hidden_size=32,
        intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, eos_token_id=None, initializer_range=0.25)
    kind = getattr(modeling_found, kind)
    config = kind.config_class(plant=plant, **sizes)
    auto = "AutoModelForCausalLM" if "Causal" in kind.__name__ else "AutoModelForObjectDetection"
    config.auto_map = {"AutoConfig": f"modeling_found.{kind.config_class.__name__}",
                       auto: f"modeling_found.{kind.__name__}"}
    kind(config).save_pretrained(f"{folder}/{name}")
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("found")
    parts = [f"{name}={kind}={plant}" for name, (kind, plant) in PLANTS.items()]
    save_planted(folder, "modeling_found.py", "4.57", SAVE, parts, PLANTS, MATRIX)
    return run_in(folder)


@pytest.fixture(scope="module")
def cells(report):
    return {c.cell.model: c for row in report.rows for c in row.cells if c.cell.stack == "5.2"}


@pytest.fixture(scope="module")
def steps(report):
    return {row.model: steps_of(row) for row in report.rows}


@pytest.mark.parametrize("name", ["detector", "llama"])
def test_a_clean_twin_is_not_accused(cells, steps, name):
    assert cells[name].verdict in ("identical", "rounding"), cells[name].headline
    assert not {f.code for f in cells[name].findings} & {"SB714", "SB840", "SB841", "SB842"}
    step = steps[name]["5.2"]
    assert step.failure is None, step.failure
    if name == "detector":  # the other one takes no labels
        assert step.comparison.standing in ("identical", "rounding"), step.comparison


def test_a_loss_of_boxes_is_found_by_the_part_that_differs(cells, steps):
    step = steps["loss"]["5.2"]
    assert set(step.losses) == {"objects", "no object"}, step
    assert step.comparison.standing == "diverged"
    parts = {i.tensor for i in step.comparison.items if i.signal == "other losses"}
    assert parts == {"loss_bbox"}
    assert "SB841" in {f.code for f in cells["loss"].findings}
    assert cells["loss"].verdict in ("identical", "rounding")


def test_a_prompt_of_boxes_shows_what_an_image_alone_does_not(cells):
    cell = cells["boxes"]
    assert cell.verdict == "diverged", cell.headline
    assert "boxes" in str(cell.headline)


def test_embeddings_of_which_something_else_is_computed_are_named(cells):
    assert cells["embeddings"].verdict in ("identical", "rounding"), cells["embeddings"].headline
    assert "SB714" in {f.code for f in cells["embeddings"].findings}

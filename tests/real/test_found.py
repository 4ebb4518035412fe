"""Losses of boxes, prompts of boxes and embeddings over releases: planted differences are found, their twins are not."""

import pytest

from samebits.questions.training.records import steps_of
from tests.real.conftest import SMALL_LLAMA

PLANTS = {
    "detector": ("FoundForObjectDetection", ""),
    "loss": ("FoundForObjectDetection", "loss"),
    "boxes": ("FoundForObjectDetection", "boxes"),
    "llama": ("EmbeddedForCausalLM", ""),
    "embeddings": ("EmbeddedForCausalLM", "embeddings"),
}
AUTOS = {
    "FoundForObjectDetection": "AutoModelForObjectDetection",
    "EmbeddedForCausalLM": "AutoModelForCausalLM",
}
MATRIX = """
environments: ["4.57", "5.2"]
defaults: {dtypes: [float32], greedy: 0, questions: [relations, training],
  prompts: {short: {length: 9}}}
models:
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("found")
    models = {
        name: (kind, {"plant": plant} | (SMALL_LLAMA if "Causal" in kind else {"num_labels": 3}))
        for name, (kind, plant) in PLANTS.items()
    }
    save_planted(folder, "modeling_found", "4.57", AUTOS, models, MATRIX)
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

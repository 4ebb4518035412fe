"""The open-sci-ref story over four real releases: each repair makes the next defect visible."""

import json
from pathlib import Path

import pytest

from samebits.matrix.plan import Selection
from tests.real.conftest import OTHERS

pytestmark = pytest.mark.long  # for changes of findings/

CUSTOM = Path(__file__).parents[1] / "custom"
STORY = [f"open-sci-ref/{name}" for name in ("all", *(f"repair-{n}" for n in range(1, 6)))]
STACKS = ["4.48", "4.57", "5.2", "5.x"]
MODELS = {f"step-{n}": STORY[: n + 1] for n in range(6)} | {
    "seed-patch": ["inv-freq-buffer", "inv-freq-seed-patch"],
    "repaired-init": ["inv-freq-buffer", "inv-freq-buffer.repair-init"],
}
MOVED_IMPORT = """\
--- a/modeling_tiny.py
+++ b/modeling_tiny.py
@@ -6,3 +6,4 @@
 
 import torch
+from transformers.modeling_utils import GenerationMixin  # noqa: F811
 from torch import nn
"""
"""5.x has the name in transformers.generation.utils alone."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("story")


@pytest.fixture(scope="module")
def cells(folder, run_in):
    prompts = {"short": {"length": 9}, "padded": {"batch": [{"length": 5}, {"length": 13}]}}
    defaults = {"greedy": 6, **dict.fromkeys(OTHERS, False)}
    defaults["prompts"] = prompts
    models = {
        name: {
            "path": str(CUSTOM / "healthy"),
            "trust_remote_code": True,
            "patch": [str(CUSTOM / f"{diff}.diff") for diff in diffs],
        }
        for name, diffs in MODELS.items()
    }
    moved = folder / "moved-import.diff"
    moved.write_text(MOVED_IMPORT)
    models["moved-import"] = models["step-5"] | {"patch": [str(moved)]}
    # JSON is YAML
    text = json.dumps({"environments": STACKS, "defaults": defaults, "models": models})
    (folder / "matrix.yaml").write_text(text)
    report = run_in(folder)
    return {(row.model, cell.cell.stack): cell for row in report.rows for cell in row.cells}


def codes(cell):
    return {finding.code for finding in cell.findings}


def failure(cell):
    assert cell.verdict == "failed", cell
    return f"{cell.failure.phase}: {cell.failure.type}: {cell.failure.message}"


def runs_alike(cells, model, stacks=STACKS):
    """Return True if one of the stacks is the reference and the others hold the same bits."""
    verdicts = [cells[model, stack].verdict for stack in stacks]
    return sorted(verdicts) == ["identical"] * (len(stacks) - 1) + ["reference"]


def test_all_five_defects_leave_it_to_4_48(cells):
    assert cells["step-0", "4.48"].verdict == "reference"
    for stack in STACKS[1:]:
        assert "cannot import name 'LossKwargs'" in failure(cells["step-0", stack])


def test_the_new_name_alone_trades_one_release_for_another(cells):
    assert "cannot import name 'TransformersKwargs'" in failure(cells["step-1", "4.48"])
    assert cells["step-1", "4.57"].verdict == "reference"
    for stack in STACKS[2:]:
        assert failure(cells["step-1", stack]) == "load: KeyError: 'default'"


def test_then_the_list_of_tied_weights_shows(cells):
    for stack in STACKS[2:]:
        said = failure(cells["step-2", stack])
        assert said == "load: AttributeError: 'list' object has no attribute 'keys'"


@pytest.mark.parametrize("step", ["step-3", "step-4"])
def test_then_it_loads_and_its_frequencies_are_what_memory_held(cells, step):
    for stack in STACKS[2:]:
        assert cells[step, stack].verdict == "unstable"
        assert any("inv_freq" in name for name in cells[step, stack].unstable)


def test_the_import_that_goes_both_ways_brings_4_48_back(cells):
    assert cells["step-3", "4.48"].verdict == "failed"
    assert runs_alike(cells, "step-4", STACKS[:2])


def test_at_the_end_all_releases_hold_the_same_bits(cells):
    assert runs_alike(cells, "step-5")


def test_a_test_for_zeros_is_no_repair_of_unwritten_memory(cells):
    for stack in STACKS[2:]:
        assert cells["seed-patch", stack].verdict == "unstable"


def test_writing_the_buffer_again_when_5_x_asks_for_it_is_one(cells):
    assert runs_alike(cells, "repaired-init")


def test_the_report_names_each_next_defect(cells):
    """Five defects, repaired one at a time as the report says; it names the next one each time."""
    named = [{stack: codes(cells[f"step-{n}", stack]) for stack in STACKS} for n in range(6)]
    assert [found["5.x"] for found in named] == [
        {"SB101"},
        {"SB501"},
        {"SB401"},
        {"SB301"},
        {"SB301"},
        set(),
    ]
    assert [found["4.48"] for found in named] == [set(), *[{"SB101"}] * 3, set(), set()]
    assert all(found["5.2"] == found["5.x"] for found in named)


def test_a_repair_by_luck_is_said_to_be_none(cells):
    cell = cells["seed-patch", "5.x"]
    assert codes(cell) == {"SB301"}
    assert any("not a remedy" in line for finding in cell.findings for line in finding.evidence)


def test_the_hunt_reads_like_the_one_done_by_hand(cells):
    cell = cells["step-4", "5.x"]
    steps = {step.suspect: step for step in cell.steps}
    for suspect in ("the model's own code", "inputs", "weights", "embeddings"):
        assert steps[suspect].status == "ruled out", steps[suspect]
    assert steps["attention forced to eager"].status == "ruled out"
    assert [s.suspect for s in cell.steps if s.status == "ruled in"] == ["inv_freq"]
    assert "never written in this cell" in steps["inv_freq"].what
    for suspect in ("rope's cos and sin", "query, key and value"):
        assert steps[suspect].status == "follows"
        assert "the same at position 0, different bytes from position 1 on" in steps[suspect].what
    assert cell.graft.proof == "alone"
    assert cell.graft.smallest[0].endswith("inv_freq")
    assert cells["step-5", "5.x"].steps == ()


def test_a_name_that_moved_is_shown_with_where_it_is_now(cells):
    assert cells["moved-import", "4.48"].verdict == "reference"
    failure = cells["moved-import", "5.x"].failure
    (symbol,) = failure.symbols
    assert (symbol.name, symbol.owner) == ("GenerationMixin", "transformers.modeling_utils")
    assert symbol.elsewhere == ("transformers.generation.utils",)
    assert any(frame.own and frame.file.endswith("modeling_tiny.py") for frame in failure.frames)


def test_a_run_of_the_repaired_model_alone_passes(cells, folder, run_in):
    report = run_in(folder, selection=Selection.parse(models="step-5"))
    assert report.exit_code == 0, report.reasons

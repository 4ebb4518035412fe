"""The precision ladder over two real stacks: a planted cause for each rule, and a clean model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.real.conftest import write_safetensors

MODELS = {
    "healthy": ("none", "float32"),
    "one-ulp": ("one ulp", "float32"),
    "weight": ("weight", "float32"),
    "scale": ("scale", "float32"),
    "soft-cap": ("soft-cap", "bfloat16"),
    "mask": ("mask", "float32"),
    "reordered": ("reordered", "float32"),
    "reordered-16": ("reordered", "bfloat16"),
    "softmax": ("softmax", "float32"),
    "router": ("router", "float32"),
    "policy": ("policy", "float32"),
    "refuses-reordered": ("refuses reordered", "float32"),
    "refuses-scale": ("refuses scale", "float32"),
}
"""Model -> what 5.x does otherwise, and the dtype it is seen in."""

PLACED = {
    "unaligned": ("alignment", 36),
    "aligned": ("alignment", 0),
    "unaligned-reordered": ("reordered", 36),
}
"""Model -> what it does, and how far behind a boundary its file's tensors begin."""

PROMPTS = """
  prompts:
    short: {length: 9}
    padded: {batch: [{length: 5}, {length: 13}]}
"""
N, LAYERS, VOCABULARY = 64, 2, 64


def write_checkpoint(folder, defect, behind=None):
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "planted" / "modeling_ladder.py", folder)
    config = {
        "model_type": "ladder",
        "architectures": ["LadderForCausalLM"],
        "auto_map": {
            "AutoConfig": "modeling_ladder.LadderConfig",
            "AutoModelForCausalLM": "modeling_ladder.LadderForCausalLM",
        },
        "vocab_size": VOCABULARY,
        "hidden_size": N,
        "num_hidden_layers": LAYERS,
        "bos_token_id": 1,
        "eos_token_id": None,
        "use_cache": False,
        "defect": defect,
    }
    if behind is not None:
        config["architectures"] = ["CopiedForCausalLM"]
        config["auto_map"]["AutoModelForCausalLM"] = "modeling_ladder.CopiedForCausalLM"
    (folder / "config.json").write_text(json.dumps(config))
    generator = np.random.default_rng(5)
    places = np.arange(0, 16, 2) / 16
    shapes = {"embed.weight": (VOCABULARY, N), "head.weight": (VOCABULARY, N)}
    for i in range(LAYERS):
        shapes |= {f"layers.{i}.qkv.weight": (3 * N, N), f"layers.{i}.out.weight": (N, N)}
        shapes |= {f"layers.{i}.experts.{e}.weight": (N, N) for e in range(4)}
    tensors = {n: generator.normal(0, 0.2, s).astype(np.float32) for n, s in shapes.items()}
    tensors["rope.inv_freq"] = (1.0 / 500.0**places).astype(np.float32)
    for i in range(LAYERS):
        tensors[f"layers.{i}.norm"] = generator.normal(1, 0.2, N).astype(np.float32)
        # two experts with all but the same scores: whichever is taken hangs on rounding
        row = generator.normal(0, 1, N).astype(np.float32)
        twin = row + generator.normal(0, 2e-8, N).astype(np.float32)
        tensors[f"layers.{i}.router.weight"] = np.stack([row, twin, -row, -twin])
    write_safetensors(folder / "model.safetensors", tensors, behind)


@pytest.fixture(scope="module")
def report(tmp_path_factory, run_in):
    folder = tmp_path_factory.mktemp("ladder")
    lines = ['environments: ["4.48", "5.x"]', "defaults:", "  greedy: 3", "  questions: []"]
    lines.append(PROMPTS)
    lines.append("models:")
    for name, (defect, dtype) in MODELS.items():
        write_checkpoint(folder / name, defect)
        told = f"path: {folder / name}, dtypes: [{dtype}], trust_remote_code: true"
        lines.append(f"  {name}: {{{told}}}")
    for name, (defect, behind) in PLACED.items():
        write_checkpoint(folder / name, defect, behind)
        lines.append(f"  {name}: {{path: {folder / name}, trust_remote_code: true}}")
    (folder / "matrix.yaml").write_text("\n".join(lines))
    return run_in(folder)


@pytest.fixture(scope="module")
def cells(report):
    return {
        row.model: cell for row in report.rows for cell in row.cells if cell.cell.stack != "4.48"
    }


def test_a_healthy_model_is_identical_and_climbs_no_ladder(cells):
    assert cells["healthy"].verdict == "identical", cells["healthy"].headline
    assert cells["healthy"].ladder is None


@pytest.mark.parametrize("model", ["one-ulp", "weight"])
def test_one_ulp_of_what_is_stored_is_diverged_however_small(cells, model):
    cell = cells[model]
    assert (cell.verdict, cell.ladder.rule) == ("diverged", "stored constant")
    assert {constant.kind for constant in cell.ladder.constants} == {"changed"}


@pytest.mark.parametrize("model", ["scale", "soft-cap", "mask"])
def test_another_function_is_diverged_however_small(cells, model):
    cell = cells[model]
    assert (cell.verdict, cell.ladder.rule) == ("diverged", "slope"), cell.ladder.reason
    worst = next(step for step in cell.ladder.steps if step.kind == "diverged")
    assert worst.ratio > 1 / 8


def test_the_planted_differences_are_small_enough_to_pass_for_rounding(cells):
    sizes = [step.own for step in cells["soft-cap"].ladder.steps]
    assert max(sizes) <= max(step.own for step in cells["reordered-16"].ladder.steps) * 4


@pytest.mark.parametrize("model", ["reordered", "reordered-16"])
def test_a_sum_in_another_order_is_rounding_however_large(cells, model):
    cell = cells[model]
    assert (cell.verdict, cell.ladder.rule) == ("rounding", "slope"), cell.ladder.reason
    assert all(step.ratio < 1e-6 for step in cell.ladder.steps if step.ratio is not None)
    assert cell.ladder.worse is None


def test_a_softmax_in_a_smaller_dtype_is_rounding_and_the_worse_side_is_named(cells):
    cell = cells["softmax"]
    assert cell.verdict == "rounding", cell.ladder.reason
    assert cell.ladder.worse == "candidate", [step.errors for step in cell.ladder.steps]


def test_a_router_that_flips_is_rounding_with_the_flip_and_its_margin(cells):
    cell = cells["router"]
    assert cell.verdict == "rounding", cell.ladder.reason
    assert max(step.own for step in cell.ladder.steps) > 1e-3, "nothing flipped"
    assert cell.ladder.flips
    assert all(flip.margin < 1e-5 and not flip.in_float64 for flip in cell.ladder.flips)


def test_a_weight_kept_in_a_smaller_dtype_is_rounding_by_policy(cells):
    cell = cells["policy"]
    assert (cell.verdict, cell.ladder.rule) == ("rounding", "dtype policy"), cell.ladder.reason
    assert cell.ladder.worse == "candidate"


def test_where_float64_is_refused_the_cells_own_noise_decides(cells):
    cell = cells["refuses-reordered"]
    assert (cell.verdict, cell.ladder.rule) == ("rounding", "self-noise"), cell.ladder.reason
    assert any("no float64" in note for note in cell.ladder.notes)


def test_more_than_noise_without_float64_stays_undecided_with_its_reason(cells):
    cell = cells["refuses-scale"]
    assert (cell.verdict, cell.ladder.rule) == ("undecided", "nothing")
    assert "larger than the noise of both sides" in cell.ladder.reason


NAMED = "the weights have different alignments in memory"


def test_rounding_by_alignment_alone_is_named(cells):
    cell = cells["unaligned"]
    assert (cell.verdict, cell.ladder.rule) == ("rounding", "slope"), cell.ladder.reason
    found = cell.ladder.alignment
    assert (found.what, found.same) == ("forward short", True), found
    assert found.off[0] == 0 < found.off[1]
    assert NAMED in cell.ladder.reason


def test_the_same_model_in_an_aligned_file_is_identical(cells):
    assert cells["aligned"].verdict == "identical", cells["aligned"].headline


def test_rounding_that_another_alignment_leaves_is_not_laid_to_it(cells):
    cell = cells["unaligned-reordered"]
    assert cell.verdict == "rounding", cell.ladder.reason
    assert cell.ladder.alignment.same is False
    assert cell.ladder.alignment.off[1] > 0
    assert NAMED not in cell.ladder.reason

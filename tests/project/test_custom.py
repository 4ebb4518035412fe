"""The custom checkpoints of tests/custom are what make.py writes, and every diff applies to them."""

import itertools
import json
import re
import runpy
from pathlib import Path

import pytest

from samebits.base.patches import patched_files

CUSTOM = Path(__file__).parents[1] / "custom"
HEALTHY = CUSTOM / "healthy"
DIFFS = sorted(path.name for path in CUSTOM.glob("*.diff"))
STORY = [
    CUSTOM / "open-sci-ref" / f"{n}.diff" for n in ("all", *(f"repair-{i}" for i in range(1, 6)))
]
AFTER = {"inv-freq-seed-patch.diff": "inv-freq-buffer.diff"}
"""Diff -> the one that it is applied after, where its name does not say so."""
README = (CUSTOM / "README.md").read_text("utf-8")


def chain(name):
    """Return the diffs that make a model, the named one last."""
    defect = AFTER.get(name, f"{name.partition('.')[0]}.diff")
    return [CUSTOM / n for n in dict.fromkeys((defect, name))]


def test_the_weights_are_what_make_writes():
    made = runpy.run_path(str(CUSTOM / "make.py"))["weights"]()
    assert (HEALTHY / "model.safetensors").read_bytes() == made
    assert len(made) <= 40_000


def test_nothing_in_the_healthy_model_hides_a_defect():
    config = json.loads((HEALTHY / "config.json").read_text("utf-8"))
    assert 1 < config["num_key_value_heads"] < config["num_attention_heads"]
    assert config["rope_theta"] != 10000.0
    assert config["head_dim"] * config["num_attention_heads"] != config["hidden_size"]
    module = runpy.run_path(str(CUSTOM / "make.py"))
    generator = module["np"].random.Generator(module["np"].random.Philox(0))
    for name, shape in module["shapes"](config).items():
        values = module["values"](name, shape, generator)
        assert len(set(values.ravel().tolist())) > values.size * 0.9, name
        assert not (values == (1.0 if "norm" in name else 0.0)).all(), name


@pytest.mark.parametrize("name", DIFFS)
def test_a_diff_applies_and_python_reads_what_comes_out(name):
    files = patched_files(HEALTHY, chain(name))
    assert files
    for path, text in files.items():
        assert text is not None
        json.loads(text) if path.endswith(".json") else compile(text, path, "exec")


@pytest.mark.parametrize("name", [n for n in DIFFS if ".repair" not in n])
def test_a_defect_says_in_its_first_line_what_it_is(name):
    first = (CUSTOM / name).read_text("utf-8").partition("\n")[0]
    assert re.match(r"# (No remedy for )?(generate\(\), |[A-Z]+-\d\d)", first)


def test_the_story_applies_step_by_step():
    seen = [patched_files(HEALTHY, STORY[: n + 1]) for n in range(len(STORY))]
    assert all(one != other for one, other in itertools.pairwise(seen))
    end = seen[-1]["modeling_tiny.py"]
    for defect in ("import LossKwargs\n\n\nclass", "register_buffer", '["lm_head.weight"]'):
        assert defect not in end


def test_every_diff_stands_in_the_readme():
    listed = set(re.findall(r"^\| ([a-z0-9.-]+) \|", README, re.MULTILINE))
    assert {name.removesuffix(".diff") for name in DIFFS} <= listed

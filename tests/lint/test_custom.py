"""The models of tests/custom: every idiom that code shows is found, every repaired model is clean."""

import ast
import shutil
from pathlib import Path

import pytest

from samebits.base.patches import patched_files
from samebits.lint.engine import lint, python_files
from samebits.lint.fix import fix_files

CUSTOM = Path(__file__).parents[1] / "custom"

PLANTED = {
    "cache-attribute": {"SB701"},
    "cache-crop": {"SB707"},
    "cache-keyword": {"SB709"},
    "cache-name": {"SB713"},
    "cache-output": {"SB713"},
    "cache-subscript": {"SB702", "SB708"},
    "cache-truthiness": {"SB708"},
    "cache-window": {"SB725"},
    "config-attribute": {"SB201"},
    "create-causal-mask": {"SB102", "SB603"},
    "dtype-keyword": {"SB105"},
    "extended-mask": {"SB104"},
    "generate-legacy": {"SB713", "SB805"},
    "head-mask": {"SB104"},
    "import-losskwargs": {"SB101"},
    "import-removed": {"SB102"},
    "import-transformerskwargs": {"SB101"},
    "init-overwrites": {"SB303"},
    "inv-freq-buffer": {"SB301"},
    "inv-freq-buffer+inv-freq-seed-patch": {"SB301"},
    "inv-freq-dtype": {"SB504"},
    "layer-tuple": {"SB803"},
    "legacy-cache": {"SB701"},
    "library-rotary-init": {"SB301"},
    "library-sdpa": {"SB604"},
    "logits-to-keep": {"SB804"},
    "mask-4d-longer": {"SB602", "SB604"},
    "meta-init-item": {"SB305"},
    "meta-init-numpy": {"SB305"},
    "no-generation-mixin": {"SB103"},
    "no-post-init": {"SB402"},
    "own-load": {"SB324"},
    "prepare-inputs": {"SB729", "SB890"},
    "rope-default-key": {"SB501"},
    "rope-scaling-filled": {"SB507"},
    "rope-theta-default": {"SB503"},
    "rope-theta-missing": {"SB202"},
    # its _init_weights, too, keeps the library from filling inv_freq
    "rotary-device": {"SB301", "SB502"},
    "sinusoid-table": {"SB301"},
    "tie-weights-signature": {"SB403"},
    "tied-list": {"SB401"},
    "untied": {"SB404"},
    "open-sci-ref/all": {"SB101", "SB301", "SB401", "SB501"},
    "open-sci-ref/all+open-sci-ref/repair-1": {"SB101", "SB301", "SB401", "SB501"},
}
"""Diffs that are applied one after the other -> the codes that lint reports."""

UNSEEN = {
    "missing-parameter": "whether the checkpoint holds a parameter is not in the code",
    "own-sdpa-gqa": "a control: nothing differs",
    "rope-linear": "a control: nothing differs",
    "rope-parameters": "a control: nothing differs",
    "strict-config": "the value is in config.json",
    "tokenizer-backend": "the class is in tokenizer_config.json",
    "tokenizer-llama": "the tokenizer is in its files",
}
"""Diffs in which lint sees nothing, and why."""

REPAIRED = sorted(path.name.removesuffix(".diff") for path in CUSTOM.glob("*.repair*.diff"))

SAME_TEXT = {
    "dtype-keyword": "dtype-keyword+dtype-keyword.repair",
    "library-rotary-init": "library-rotary-init+library-rotary-init.repair",
    "tied-list": "",
}
"""Planted diffs whose repair by --fix is the text of these diffs (none: the healthy model)."""


def model(tmp_path, diffs):
    """Write the healthy model with diffs into a folder."""
    names = [CUSTOM / f"{name}.diff" for name in diffs.split("+") if name]
    for path in (CUSTOM / "healthy").iterdir():
        if path.suffix in {".py", ".json"}:
            shutil.copy(path, tmp_path)
    for name, text in patched_files(CUSTOM / "healthy", names).items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def codes(folder):
    return {problem.code for problem in lint(python_files([folder])).problems}


def code_of(folder):
    """Return the syntax of every file, without positions and comments."""
    return {p.name: ast.dump(ast.parse(p.read_text("utf-8"))) for p in sorted(folder.glob("*.py"))}


@pytest.mark.parametrize("diffs", PLANTED)
def test_a_planted_idiom_is_found(tmp_path, diffs):
    assert codes(model(tmp_path, diffs)) == PLANTED[diffs]


@pytest.mark.parametrize("diffs", ["", *UNSEEN])
def test_the_healthy_model_and_what_code_does_not_show_are_clean(tmp_path, diffs):
    assert codes(model(tmp_path, diffs)) == set()


@pytest.mark.parametrize("repair", REPAIRED)
def test_a_repaired_model_is_clean(tmp_path, repair):
    assert codes(model(tmp_path, f"{repair.partition('.')[0]}+{repair}")) == set()


def test_the_story_of_open_sci_ref_ends_clean(tmp_path):
    names = ["all", *(f"repair-{n}" for n in range(1, 6))]
    assert codes(model(tmp_path, "+".join(f"open-sci-ref/{n}" for n in names))) == set()


def test_every_diff_is_planted_or_unseen_or_a_repair():
    listed = {name for diffs in [*PLANTED, *UNSEEN] for name in diffs.split("+")} | set(REPAIRED)
    assert {p.name.removesuffix(".diff") for p in CUSTOM.glob("*.diff")} <= listed


@pytest.mark.parametrize("diffs", PLANTED)
def test_fix_leaves_only_what_it_cannot_repair(tmp_path, diffs):
    folder = model(tmp_path, diffs)
    files = list(python_files([folder]))
    fixable = {p.code for p in lint(files).problems if p.edits}
    rest = {p.code for p in lint(files).problems if not p.edits}
    count, lines = fix_files(files, lambda _: True, write=True)
    assert (count > 0) == bool(fixable) == bool(lines)
    assert codes(folder) == rest
    assert fix_files(files, lambda _: True, write=True) == (0, [])


@pytest.mark.parametrize("diffs", SAME_TEXT)
def test_fix_agrees_with_the_repair_that_was_measured(tmp_path, diffs):
    (tmp_path / "fixed").mkdir()
    (tmp_path / "measured").mkdir()
    fixed = model(tmp_path / "fixed", diffs)
    fix_files(list(python_files([fixed])), lambda _: True, write=True)
    assert code_of(fixed) == code_of(model(tmp_path / "measured", SAME_TEXT[diffs]))

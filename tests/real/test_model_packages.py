"""Packages of models on real stacks: a planted defect is found, its clean twin is not accused."""

from tests.support.model_packages import make_checkpoint, make_package

MATRIX = """
stacks: ["4.48", "5.x"]
defaults: {usage: false, relations: false, crossings: false, training: false}
models:
  healthy: {path: tiny, packages: ./healthy, import: healthy_models}
  planted: {path: tiny, packages: ./planted, class: "planted_models.modeling_tiny:TinyForCausalLM"}
  newer: {path: tiny, packages: ./newer, import: newer_models}
  plain: {build: {architecture: gpt2, config: {vocab_size: 40, n_embd: 16, n_layer: 1, n_head: 2}}}
"""


def test_code_of_packages_is_compared_and_changes_no_other_model(tmp_path, run_in):
    make_checkpoint(tmp_path / "tiny")
    make_package(tmp_path / "healthy", "healthy_models")
    make_package(tmp_path / "planted", "planted_models", patches=["inv-freq-buffer.diff"])
    make_package(tmp_path / "newer", "newer_models", requires=["transformers>=5"])
    (tmp_path / "matrix.yaml").write_text(MATRIX, "utf-8")
    report = run_in(tmp_path)
    cells = {(c.cell.model, c.cell.stack): c for row in report.rows for c in row.cells}
    assert cells["healthy", "5.x"].verdict == "identical"
    planted = cells["planted", "5.x"]
    assert planted.verdict == "unstable"
    assert "SB301" in {finding.code for finding in planted.findings}
    absent = cells["newer", "4.48"]
    assert absent.verdict == "absent"
    assert "depends on transformers>=5" in absent.absent
    assert cells["plain", "4.48"].failure is None
    listed = {(p.models, p.stack): p for p in report.packages}
    assert listed[("healthy",), "5.x"].packages == {"healthy-models": "0.1"}
    assert listed[("newer",), "4.48"].failure == absent.absent
    # the stacks themselves have none of them
    assert not any("models" in name for stack in report.stacks for name in stack.packages)

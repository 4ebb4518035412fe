"""Devices that no machine of the tests has, and models that change torch's settings."""

import pytest

from samebits.reports.document import render

ALLOW = "torch.backends.cuda.matmul.allow_tf32"
MATRIX = """
environments: ["4.48", "5.x"]
defaults: {dtypes: [float32], prompts: {short: {length: 9}}, greedy: 2, questions: [save_load, training]}
models:
  healthy: {path: none, trust_remote_code: true, devices: [cpu, xpu]}
  on-load: {path: load sets TF32, trust_remote_code: true}
  in-forward: {path: forward sets TF32, trust_remote_code: true}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, planted, run_in):
    folder = tmp_path_factory.mktemp("devices")
    for defect in ("none", "load sets TF32", "forward sets TF32"):
        (folder / defect).symlink_to(planted(defect))
    (folder / "matrix.yaml").write_text(MATRIX)
    return run_in(folder, level="quick")


def cells_of(report, model, variant="float32-default"):
    (row,) = [row for row in report.rows if (row.model, row.variant) == (model, variant)]
    return row, {result.cell.stack: result for result in row.cells}


def test_a_missing_device_is_no_failure(report):
    _, cells = cells_of(report, "healthy", "float32-default-xpu")
    for result in cells.values():
        assert result.verdict == "not finished"
        assert "no xpu device" in result.unfinished.reason
        assert "--devices cpu" in result.unfinished.reason
    assert report.exit_code == 3
    assert cells_of(report, "healthy")[1]["5.x"].verdict == "identical"


def test_the_environment_page_says_once_why_no_probe_of_a_gpu_ran(report):
    text = render(report)["environment.md"]
    assert text.count("no cell on a GPU got that far") == 1


@pytest.mark.parametrize(("model", "by"), [("on-load", "load"), ("in-forward", "prompts")])
def test_a_model_that_sets_tf32_in_one_release_is_named(report, model, by):
    row, cells = cells_of(report, model)
    assert cells["5.x"].verdict == "identical"  # products on a CPU do not follow it
    (finding,) = [f for f in cells["5.x"].findings if f.code.startswith("SB92")]
    assert finding.code == "SB922"
    assert any(ALLOW in line for line in finding.evidence)
    assert {change.by for change in row.settings["5.x"]} == {by}
    assert "4.48" not in row.settings


def test_no_release_of_these_sets_anything_on_import(report):
    assert not any(f.code == "SB921" for stack in report.stacks for f in stack.findings)
    row, cells = cells_of(report, "healthy")
    assert row.settings == {}
    assert not any(f.code.startswith("SB92") for r in cells.values() for f in r.findings)

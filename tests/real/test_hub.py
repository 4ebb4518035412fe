"""Models of the hub, through the real loading code and a local cache: no network is reached."""

import os
import shutil

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


MODELS = {
    "pinned": f"hub: tiny/healthy, trust_remote_code: true, revision: '{COMMIT}'",
    "branch": "hub: tiny/healthy, trust_remote_code: true, revision: main",
    "gone": "hub: tiny/gone",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory, planted, run_in):
    """Lay a checkpoint out as huggingface_hub keeps it, go offline, and run twice: reports, times of captures."""
    folder = tmp_path_factory.mktemp("hub")
    repository = folder / "hf" / "hub" / "models--tiny--healthy"
    shutil.copytree(planted("none"), repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (folder / "matrix.yaml").write_text(
        'environments: ["4.48", "5.x"]\n'
        "defaults: {greedy: 0, questions: [usage],\n"
        "  prompts: {short: {length: 9}}}\nmodels:\n"
        + "".join(f"  {name}: {{{fields}}}\n" for name, fields in MODELS.items())
    )
    variables = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_secret"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setitem(os.environ, name, value)
        return [(run_in(folder), times(folder)) for _ in range(2)]


def times(folder):
    """Return model -> when each of its captures was written."""
    return {
        name: {
            path: path.stat().st_mtime_ns
            for path in folder.glob(f".samebits/captures/{name}/**/*.json")
        }
        for name in MODELS
    }


def cells(report, model):
    (row,) = (row for row in report.rows if row.model == model)
    return row.cells


def test_a_hub_model_at_a_commit_is_loaded_traced_and_kept(reports):
    (report, before), (_, after) = reports
    reference, cell = cells(report, "pinned")
    assert (reference.verdict, cell.verdict) == ("reference", "identical"), cell.headline
    weights = next(s for s in cell.signals if s.signal == "weights")
    assert weights.outcome == "identical"
    assert weights.n_items == 5
    assert before["pinned"] == after["pinned"] != {}
    assert "hf_secret" not in report.model_dump_json()


def test_a_branch_can_move_so_its_captures_are_not_kept(reports):
    (_, before), (report, after) = reports
    assert cells(report, "branch")[1].verdict == "identical"
    assert before["branch"] != after["branch"]


def test_a_model_that_is_not_there_is_a_failure_of_its_cell(reports):
    for report, _ in reports:
        assert report.exit_code == 1
        assert [reason for reason in report.reasons if "gone" not in reason] == []
        for cell in cells(report, "gone"):
            assert cell.verdict == "failed"
            assert cell.failure.phase == "config"

"""Models of the hub, through the real loading code and a local cache: no network is reached."""

import os
import shutil

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path, planted, monkeypatch):
    """Lay a checkpoint out as huggingface_hub keeps it, and go offline."""
    repository = tmp_path / "hf" / "hub" / "models--tiny--healthy"
    shutil.copytree(planted("none"), repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setitem(os.environ, "HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(os.environ, "HF_TOKEN", "hf_secret")
    return tmp_path


def matrix(folder, **entry):
    fields = ", ".join(f"{key}: {value}" for key, value in entry.items())
    (folder / "matrix.yaml").write_text(
        'stacks: ["4.48", "5.x"]\n'
        "defaults: {greedy: 0, prompts: {short: {length: 9}}}\n"
        f"models:\n  healthy: {{hub: tiny/healthy, trust_remote_code: true, {fields}}}\n"
    )


def test_a_hub_model_at_a_commit_is_loaded_traced_and_kept(hub_cache, run_in):
    matrix(hub_cache, revision=f"'{COMMIT}'")
    report = run_in(hub_cache)
    assert report.exit_code == 0, report.reasons
    (row,) = report.rows
    weights = next(s for s in row.cells[1].signals if s.signal == "weights")
    assert weights.outcome == "identical"
    assert weights.n_items == 5
    before = {p: p.stat().st_mtime_ns for p in hub_cache.glob(".samebits/captures/**/*.json")}
    run_in(hub_cache)
    after = {p: p.stat().st_mtime_ns for p in hub_cache.glob(".samebits/captures/**/*.json")}
    assert before == after
    assert "hf_secret" not in report.model_dump_json()


def test_a_branch_can_move_so_its_captures_are_not_kept(hub_cache, run_in):
    matrix(hub_cache, revision="main")
    assert run_in(hub_cache).exit_code == 0
    before = {p: p.stat().st_mtime_ns for p in hub_cache.glob(".samebits/captures/**/*.json")}
    assert run_in(hub_cache).exit_code == 0
    after = {p: p.stat().st_mtime_ns for p in hub_cache.glob(".samebits/captures/**/*.json")}
    assert before != after


def test_a_model_that_is_not_there_is_a_failure_of_its_cell(hub_cache, run_in):
    (hub_cache / "matrix.yaml").write_text(
        'stacks: ["4.48", "5.x"]\nmodels:\n  gone: {hub: tiny/gone}\n'
    )
    report = run_in(hub_cache)
    assert report.exit_code == 1
    for cell in report.rows[0].cells:
        assert cell.verdict == "failed"
        assert cell.failure.phase == "config"


def test_custom_code_is_not_run_without_leave(hub_cache, run_in):
    (hub_cache / "matrix.yaml").write_text(
        'stacks: ["4.48", "5.x"]\nmodels:\n  healthy: {hub: tiny/healthy}\n'
    )
    for cell in run_in(hub_cache).rows[0].cells:
        assert cell.verdict in {"failed", "absent"}

"""Recorded files of a checkpoint, found in git by their content."""

import subprocess

import pytest

from samebits.gate import history
from samebits.gate.history import changed_files, files_of, restored

pytestmark = pytest.mark.processes


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "modeling.py").write_text("one")
    (folder / "README.md").write_text("read")
    (folder / "model.safetensors").write_bytes(b"w" * 10)
    return folder


def files(folder):
    return files_of(folder, folder.parent / "hashes.json")


def commit(folder, message="c"):
    git = ["git", "-C", str(folder.parent), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "model"], check=True)
    subprocess.run([*git, "commit", "-qm", message], check=True)


def test_the_files_that_make_a_model(model):
    (model / ".cache").mkdir()
    (model / ".cache" / "x.json").write_text("{}")
    assert list(files(model)) == ["config.json", "model.safetensors", "modeling.py"]


def test_changed_added_and_removed_files():
    assert changed_files({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == ("b", "c")


def test_a_recorded_file_is_found_some_commits_ago(model, tmp_path):
    recorded = files(model)
    commit(model)
    for text in ("two", "three"):
        (model / "modeling.py").write_text(text)
        commit(model, text)
    (model / "extra.py").write_text("new")
    found, missing = restored(model, recorded, files(model), tmp_path / "work")
    assert missing == ()
    assert (found / "modeling.py").read_text() == "one"
    assert (found / "model.safetensors").read_bytes() == b"w" * 10
    assert files(found) == recorded
    again, _ = restored(model, recorded, files(model), tmp_path / "work")
    assert again == found


def test_a_removed_file_is_found_too(model, tmp_path):
    recorded = files(model)
    commit(model)
    (model / "modeling.py").unlink()
    found, _ = restored(model, recorded, files(model), tmp_path / "work")
    assert (found / "modeling.py").read_text() == "one"


def test_a_file_that_was_never_committed_is_named(model, tmp_path):
    recorded = files(model)
    (model / "modeling.py").write_text("two")
    commit(model)
    assert restored(model, recorded, files(model), tmp_path / "work") == (None, ("modeling.py",))


def test_without_git_nothing_is_found(model, tmp_path, monkeypatch):
    recorded = files(model)
    (model / "modeling.py").write_text("two")

    def run(*_, **__):
        raise FileNotFoundError(2, "git")

    monkeypatch.setattr(history.subprocess, "run", run)
    assert restored(model, recorded, files(model), tmp_path / "work")[1] == ("modeling.py",)

"""Recorded files of a checkpoint, found in git by their content."""

import subprocess

import pytest

from samebits.base import git as git_of
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


@pytest.mark.parametrize("name", ["source.spm", "qwen.tiktoken", "bpe.codes", "tokenizer.model.v3"])
def test_a_vocabulary_of_any_name_is_part_of_a_model(model, name):
    (model / name).write_text("one")
    (model / "notes.log").write_text("one")
    recorded = files(model)
    (model / name).write_text("other")
    (model / "notes.log").write_text("other")
    assert changed_files(recorded, files(model)) == (name,)


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

    monkeypatch.setattr(git_of.subprocess, "run", run)
    assert restored(model, recorded, files(model), tmp_path / "work")[1] == ("modeling.py",)


def git(folder, *words, **more):
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def test_a_repository_that_came_with_the_model_runs_no_program(model, tmp_path):
    recorded = files(model)
    canary, program = tmp_path / "canary", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\n")
    program.chmod(0o755)
    git(model, "init", "-q")
    (model / ".gitattributes").write_text("*.py diff=own filter=own\n")
    git(model, "add", ".")
    git(model, "commit", "-qm", "one")
    (model / "modeling.py").write_text("two")
    tree = git(model, "rev-parse", "HEAD^{tree}").strip()
    signed = f"tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\ngpgsig x\n\nsigned\n"
    commit = git(model, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", input=signed)
    git(model, "update-ref", "HEAD", commit.strip())
    for key in (
        "gpg.program", "core.fsmonitor", "diff.own.textconv", "diff.own.command", "diff.external",
        "filter.own.smudge", "core.pager", "core.sshCommand",
    ):  # fmt: skip
        git(model, "config", key, str(program))
    git(model, "config", "log.showSignature", "true")
    found, _ = restored(model, recorded, files(model), tmp_path / "work")
    assert (found / "modeling.py").read_text() == "one"
    assert not canary.exists()


def test_a_repository_that_came_with_the_model_fetches_nothing(model, tmp_path):
    recorded = files(model)
    canary = tmp_path / "canary"
    git(model, "init", "-q")
    git(model, "add", ".")
    git(model, "commit", "-qm", "one")
    blob = git(model, "rev-parse", "HEAD:modeling.py").strip()
    path = model / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.unlink()
    (model / "modeling.py").write_text("two")
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::sh -c touch% {canary}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
    }.items():
        git(model, "config", key, value)
    assert restored(model, recorded, files(model), tmp_path / "work") == (None, ("modeling.py",))
    assert not canary.exists()

"""Tests of the probe sessions of nox: correct if needed, and without cost in other commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.sessions import environment_ids

MATRIX = """\
environments: ["4.48", "5.x"]
models:
  llama: {build: llama}
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change into an empty folder with a small matrix."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text(MATRIX, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["nox"],
        ["nox", "-s", "probe(4.48)"],
        ["nox", "-l", "--"],
        ["nox", "-s", "matrix", "-l"],
        ["nox", "-s", "lint", "probe(5.x)"],
        ["nox", "-k", "probe"],
    ],
    ids=" ".join,
)
def test_nox_is_told_the_stacks_of_the_matrix(arguments):
    assert environment_ids(arguments) == ["4.48", "5.x"]


@pytest.mark.parametrize("option", [["--matrix", "other.yaml"], ["--matrix=other.yaml"]], ids=len)
def test_nox_is_told_those_of_another_matrix(folder, option):
    (folder / "other.yaml").write_text(MATRIX.replace("4.48", "4.57"), "utf-8")
    arguments = ["nox", "-s", "probe(4.57)", "--", "--fresh", *option]
    assert environment_ids(arguments) == ["4.57", "5.x"]
    # before the dashes it is an option of nox
    assert environment_ids(["nox", *option]) == ["4.48", "5.x"]


@pytest.mark.parametrize(
    "text", ["", "models: [", "models: {llama: {biuld: x}}", "3", "\0", None], ids=ascii
)
def test_a_broken_matrix_offers_no_stack_and_no_traceback(folder, text):
    path = folder / "matrix.yaml"
    path.unlink()
    if text is not None:
        path.write_text(text, "utf-8")
    assert environment_ids(["nox", "-l"]) == []


def test_a_mistake_behind_the_dashes_offers_no_stack_either():
    assert environment_ids(["nox", "--", "--matrix"]) == []
    assert environment_ids(["nox", "--", "--matrix", "."]) == []


def test_a_probe_that_cannot_be_offered_says_why(folder, capsys):
    (folder / "bad.yaml").write_text(MATRIX.replace("models", "model"), "utf-8")
    assert environment_ids(["nox", "-s", "probe(4.48)", "--", "--matrix", "none.yaml"]) == []
    assert f"none.yaml: the file does not exist in {folder}" in capsys.readouterr().err
    assert environment_ids(["nox", "-s", "probe(4.48)", "--", "--matrix", "bad.yaml"]) == []
    assert 'bad.yaml:2:1: unknown key "model"' in capsys.readouterr().err
    assert environment_ids(["nox", "-l", "--", "--matrix", "bad.yaml"]) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments",
    [["-s", "matrix"], ["-s", "lint", "tests"], ["-s", "matrix", "--", "--models", "probe"]],
    ids=" ".join,
)
def test_a_command_that_runs_no_probe_is_told_none(arguments):
    assert environment_ids(["nox", *arguments]) == []


@pytest.mark.processes
def test_the_noxfile_is_read_without_what_only_a_run_needs():
    code = (
        "import sys; from bench.sessions import environment_ids; environment_ids(['nox', '-s', 'matrix'])\n"
        "print(sorted({'pydantic', 'numpy', 'yaml', 'rich', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

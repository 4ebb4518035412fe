"""What init writes loads as a matrix, and replaces nothing."""

import ast
from argparse import Namespace
from pathlib import Path

import pytest

from samebits.check import init
from samebits.check.init import InitError, write_files
from samebits.matrix import load
from tests.check.test_model import CONFIG, checkpoint


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*models, force=False, trust=False):
    return write_files(Namespace(models=list(models), force=force, trust_remote_code=trust))


def matrix():
    return load.load(Path("matrix.yaml"))


def test_the_checkpoints_of_the_folder_are_found(folder):
    checkpoint(folder / "b")
    checkpoint(folder / "runs" / "last", CONFIG | {"transformers_version": "4.52.1"})
    checkpoint(folder / "runs" / "B")
    checkpoint(folder / ".cache" / "hidden")
    checkpoint(folder / "tool", {"name": "of something else"})
    checkpoint(folder / "broken", "{")
    lines = run()
    assert lines[0] == "matrix.yaml: 3 models under 4.52, 4.57, 5.2, 5.x"
    assert {m.name: m.path for m in matrix().models} == {
        "b": "b",
        "B-2": "runs/B",
        "last": "runs/last",
    }
    assert [stack.id for stack in matrix().stacks] == ["4.52", "4.57", "5.2", "5.x"]


def test_the_schema_of_the_first_line_is_there(folder):
    checkpoint(folder / "m")
    run("m")
    first = Path("matrix.yaml").read_text().splitlines()[0]
    schema = Path(first.partition("$schema=")[2])
    assert schema.read_text() == (
        Path(init.__file__).parents[1] / "schemas" / "matrix.schema.json"
    ).read_text("utf-8")


def test_the_noxfile_has_the_session(folder):
    checkpoint(folder / "m")
    run("m")
    (session,) = (
        node
        for node in ast.parse(Path("noxfile.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    )
    assert session.name == "matrix"


def test_nothing_is_replaced_unasked(folder):
    checkpoint(folder / "m")
    (folder / "matrix.yaml").write_text("mine")
    (folder / "noxfile.py").write_text("mine")
    with pytest.raises(InitError, match="--force replaces it"):
        run("m")
    assert (folder / "matrix.yaml").read_text() == "mine"
    lines = run("m", force=True)
    assert [m.name for m in matrix().models] == ["m"]
    assert (folder / "noxfile.py").read_text() == "mine"
    assert any("def matrix(session):" in line for line in lines)


def test_own_code_runs_only_if_that_is_said(folder):
    checkpoint(folder / "m", CONFIG | {"auto_map": {"AutoModel": "x.X"}})
    assert any("read it, then set trust_remote_code: true" in line for line in run("m"))
    assert not matrix().models[0].trust_remote_code
    run("m", force=True, trust=True)
    assert matrix().models[0].trust_remote_code


@pytest.mark.parametrize("name", ["no", "a b", "1e3", "it's: #1", "ünïcode", 'q"uote', "~", "[x]"])
def test_every_folder_name_is_written_so_that_it_is_read_again(folder, name):
    checkpoint(folder / name)
    run()
    (model,) = matrix().models
    assert (folder / (model.path or "")).resolve() == (folder / name).resolve()


def test_what_a_config_says_ends_no_comment(folder):
    checkpoint(folder / "m", CONFIG | {"architectures": ["A\nenvironments: [1.0]"]})
    run("m")
    assert "1.0" not in {stack.id for stack in matrix().stacks}


def test_a_folder_that_cannot_be_written_is_a_mistake(folder):
    checkpoint(folder / "a")
    (folder / ".samebits").touch()  # root may write anywhere, but not below a file
    with pytest.raises(InitError, match="cannot be written: "):
        run(force=True)


def test_a_folder_without_checkpoints_is_a_mistake(folder):
    with pytest.raises(InitError, match="no checkpoint lies in"):
        run()
    assert not (folder / "matrix.yaml").exists()


def test_the_dtype_of_a_config_is_written_down_with_float32(folder):
    checkpoint(folder / "small", CONFIG | {"torch_dtype": "bfloat16"})
    checkpoint(folder / "usual")
    run()
    assert {m.name: m.dtypes for m in matrix().models} == {
        "small": ("bfloat16", "float32"),
        "usual": ("float32",),
    }

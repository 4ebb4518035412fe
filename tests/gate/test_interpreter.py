"""Which interpreter is the project's, and which of its packages a record lists."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from samebits.gate.interpreter import (
    CURRENT,
    Installed,
    InterpreterError,
    Package,
    environment_of,
    find_interpreter,
    has_labels,
    pins,
    read_interpreter,
    stack_of,
)

MARKERS = {"python_version": "3.11", "sys_platform": "linux", "platform_system": "Linux"}


def installed(*packages, **changed):
    base = [
        Package(name="torch", version="2.13.0+cpu", requires=("sympy>=1",)),
        Package(
            name="transformers",
            version="4.57.6",
            requires=("Safe_Tensors>=0.4", "gone; sys_platform == 'win32'", "ray; extra == 'ray'"),
        ),
        Package(name="safe-tensors", version="0.8.0"),
        Package(name="sympy", version="1.14"),
        Package(name="ray", version="3.0"),
        Package(name="jupyter", version="1.0", modules=("jupyter",)),
    ]
    fields = {"python": "3.11.7", "markers": MARKERS, "packages": (*base, *packages)}
    return Installed(**(fields | changed))


def interpreter(folder):
    path = folder / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="other paths")
def test_the_project_is_asked_from_near_to_far(tmp_path):
    deep = tmp_path / "project" / "tests"
    deep.mkdir(parents=True)
    assert find_interpreter(None, deep, {}) == Path(sys.executable)
    own = interpreter(tmp_path / "project" / ".venv")
    assert find_interpreter(None, deep, {}) == own
    active = interpreter(tmp_path / "active")
    environ = {"VIRTUAL_ENV": str(tmp_path / "active")}
    assert find_interpreter(None, deep, environ) == active
    named = interpreter(tmp_path / "named")
    assert find_interpreter(named, deep, environ) == named
    assert find_interpreter(tmp_path / "named", deep, environ) == named


def test_a_link_to_an_interpreter_stays_one(tmp_path):
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_interpreter(tmp_path / "link", tmp_path, {}) == tmp_path / "link"


def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InterpreterError, match=r"--python .*nowhere: there is no such interpreter"):
        find_interpreter(tmp_path / "nowhere", tmp_path, {})


def answer(text, errors=""):
    return lambda command: subprocess.CompletedProcess(command, 0, text, errors)


def test_an_interpreter_is_read_from_its_last_line():
    text = "a greeting\n" + installed().model_dump_json() + "\n"
    assert read_interpreter(Path("/p"), answer(text)) == installed()


@pytest.mark.parametrize(("text", "said"), [("", "boom"), ("{}", "did not list its packages")])
def test_an_interpreter_that_does_not_answer(text, said):
    with pytest.raises(InterpreterError, match=said):
        read_interpreter(Path("/p"), answer(text, "boom"))


def test_an_interpreter_without_torch_is_not_the_projects():
    bare = Installed(python="3.11.7", markers={}, packages=())
    with pytest.raises(InterpreterError, match=r"no transformers and no torch.*--python"):
        read_interpreter(Path("/p"), answer(bare.model_dump_json()))


def test_an_interpreter_that_cannot_be_run():
    def run(command):
        raise PermissionError(13, "Permission denied")

    with pytest.raises(InterpreterError, match="/p cannot be run: Permission denied"):
        read_interpreter(Path("/p"), run)


@pytest.mark.processes
def test_this_interpreter_lists_what_importlib_knows(tmp_path):
    from importlib.metadata import version

    from samebits.stacks.probes import ENVIRONMENT

    command = [sys.executable, "-I", str(ENVIRONMENT)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    found = Installed.model_validate(json.loads(said))
    by_name = {package.name: package for package in found.packages}
    assert by_name["numpy"].version == version("numpy")
    assert "numpy" in by_name["numpy"].modules
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_a_record_lists_what_bits_may_depend_on():
    environment = environment_of(installed())
    assert environment.packages == {
        "safe-tensors": "0.8.0",
        "sympy": "1.14",
        "torch": "2.13.0+cpu",
        "transformers": "4.57.6",
    }
    assert (environment.python, environment.sources, environment.local) == ("3.11.7", {}, ())


def test_a_record_lists_what_the_models_code_imports():
    einops = Package(name="Ein_ops", version="1", modules=("einops",), requires=("jupyter",))
    names = environment_of(installed(einops), {"einops", "os"}).packages
    assert {"ein-ops", "jupyter"} <= names.keys()
    assert "ein-ops" not in environment_of(installed(einops)).packages


def test_a_package_that_transformers_uses_if_it_is_there_is_listed():
    assert (
        "accelerate" in environment_of(installed(Package(name="accelerate", version="1"))).packages
    )


def test_extras_of_a_requirement_are_followed():
    wide = Package(name="timm", version="1", requires=("wide[fast]>=1",))
    target = Package(name="wide", version="2", requires=("ray; extra == 'fast'",))
    assert "ray" in environment_of(installed(wide, target)).packages


@pytest.mark.parametrize(
    ("origin", "pin"),
    [
        (
            {"url": "https://g/t.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "timm @ git+https://g/t.git@abc",
        ),
        ({"url": "https://g/t.whl", "archive_info": {}}, "timm @ https://g/t.whl"),
        (
            {
                "url": "ssh://git@g/t",
                "vcs_info": {"vcs": "git", "commit_id": "a"},
                "subdirectory": "x",
            },
            "timm @ git+ssh://git@g/t@a#subdirectory=x",
        ),
    ],
)
def test_a_package_from_an_address_is_pinned_to_it(origin, pin):
    environment = environment_of(installed(Package(name="timm", version="1", origin=origin)))
    assert environment.local == ()
    assert pin in pins(environment).splitlines()


@pytest.mark.parametrize(
    "origin",
    [
        {"url": "file:///home/me/timm", "dir_info": {"editable": True}},
        {"url": "file:///home/me/timm.whl", "archive_info": {}},
        {"url": "https://user:secret@g/t", "vcs_info": {"vcs": "git", "commit_id": "a"}},
        {"url": ""},
    ],
)
def test_a_package_of_this_machine_or_behind_a_secret_is_not_for_others(origin):
    environment = environment_of(installed(Package(name="timm", version="1", origin=origin)))
    assert (environment.local, environment.sources) == (("timm",), {})
    assert "secret" not in environment.model_dump_json()


def test_pins_with_and_without_the_label_of_a_build():
    environment = environment_of(installed())
    assert has_labels(environment)
    assert "torch==2.13.0+cpu" in pins(environment).splitlines()
    assert "torch==2.13.0" in pins(environment, labels=False).splitlines()


def test_the_projects_environment_as_a_stack():
    stack = stack_of(Path("/p/bin/python"), environment_of(installed()))
    assert (stack.id, stack.python, stack.transformers) == (CURRENT, "/p/bin/python", "4.57.6")
    elsewhere = stack_of(Path("/q/bin/python"), environment_of(installed()))
    assert stack.lock_digest != elsewhere.lock_digest


@pytest.mark.skipif(sys.platform == "win32", reason="other paths")
def test_an_environment_that_came_with_a_model_is_not_run(tmp_path):
    model = tmp_path / "model"
    own = interpreter(model / ".venv")
    (model / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InterpreterError) as caught:
        find_interpreter(None, model, {})
    assert f"{model / '.venv'} lies in the folder of a model" in str(caught.value)
    assert f"--python {model / '.venv'}" in str(caught.value)
    # whoever names or activates it has said so
    assert find_interpreter(model / ".venv", model, {}) == own
    assert find_interpreter(None, model, {"VIRTUAL_ENV": str(model / ".venv")}) == own


@pytest.mark.skipif(sys.platform == "win32", reason="other paths")
def test_an_environment_below_the_folder_of_a_model_is_not_run(tmp_path):
    inner = tmp_path / "model" / "project"
    interpreter(inner / ".venv")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "model")
    with pytest.raises(InterpreterError, match="lies in the folder of a model"):
        find_interpreter(None, inner, {}, [link])


@pytest.mark.skipif(sys.platform == "win32", reason="other paths")
def test_a_project_around_a_model_keeps_its_environment(tmp_path):
    own = interpreter(tmp_path / ".venv")
    (tmp_path / "config.json").write_text('{"port": 8080}')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    assert find_interpreter(None, tmp_path, {}, [tmp_path / "model"]) == own
    assert find_interpreter(None, tmp_path / "model", {}, [tmp_path / "model"]) == own

"""torch: system: the interpreter with torch, and stacks on top of what it has."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from samebits.base.errors import StackMachineError
from samebits.base.filestate import Dependencies
from samebits.stacks import build
from samebits.stacks.build import StackBuilder
from samebits.stacks.installer import Installer
from samebits.stacks.system import VARIABLE, find_system_torch
from tests.stacks.test_build import put_blake3
from tests.support.builders import stack_spec
from tests.support.wheels import locked, pylock

NVIDIA = "2.6.0a0+ecf3bae40a.nv25.1"
MACHINE = {"torch": NVIDIA, "numpy": "1.26.4", "Triton": "3.2.0+git1", "safetensors": "0.5.0"}
RESOLVED = "numpy==1.26.4\nsafetensors==0.5.0\ntokenizers==0.22.2\ntransformers==4.57.6\n"
SPEC = stack_spec("4.57").model_copy(update={"torch": "system"})


def facts(packages, folder, build="git_version = 1"):
    listed = [{"name": name, "version": version} for name, version in packages.items()]
    facts = {"python": "3.12.3", "packages": listed, "folders": [folder], "torch_build": build}
    return json.dumps(facts)


class Machine:
    """Answers what an interpreter lists, and does what uv does."""

    def __init__(self, packages=MACHINE, folder="/usr/lib/dist-packages", build="git_version = 1"):
        self.packages, self.folder, self.build = packages, folder, build
        self.calls, self.files, self.synced = [], {}, ""

    def __call__(self, command, text, _env):
        self.calls.append((command, text))
        return CompletedProcess(command, 0, self.answer(command, text), "")

    def answer(self, command, text):
        if command[-1].endswith("environment.py"):
            return facts(self.packages, self.folder, self.build)
        if command[-1].endswith("architectures.py"):
            return json.dumps({"architectures": ["llama"]})
        if "pylock.toml" in command:
            return pylock(text)
        if "compile" in command:
            for option in ("--override", "--constraint", "--output-file"):
                self.files[option] = Path(command[command.index(option) + 1]).read_text("utf-8")
            Path(command[command.index("--output-file") + 1]).write_text(RESOLVED, "utf-8")
        elif "venv" in command:
            python = build.interpreter_of(Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.touch()
            (python.parents[1] / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
        elif "sync" in command:
            self.synced = Path(command[-1]).read_text("utf-8")
        else:
            put_blake3(Path(command[command.index("--target") + 1]))
        return ""

    def command(self, word):
        return next(command for command, _ in self.calls if word in command)


@pytest.fixture
def environ(tmp_path):
    return {VARIABLE: str(tmp_path / "python3")}


def test_transformers_and_its_needs_go_on_top_of_what_the_machine_has(tmp_path, environ):
    machine = Machine()
    stack = StackBuilder(tmp_path, Installer(environ, run=machine)).build(SPEC)
    assert machine.synced == locked("tokenizers==0.22.2\ntransformers==4.57.6\n")
    assert f"torch=={NVIDIA}\n" in stack.lock  # the machine's own, which no index has
    assert stack.packages == {
        "numpy": "1.26.4",
        "safetensors": "0.5.0",
        "tokenizers": "0.22.2",
        "torch": NVIDIA,
        "transformers": "4.57.6",
        "triton": "3.2.0+git1",
    }
    compiled = machine.command("compile")
    assert compiled[compiled.index("--python-version") + 1] == "3.12.3"
    assert (
        next(text for command, text in machine.calls if command == compiled)
        == "transformers==4.57.*"
    )
    assert (
        machine.command("venv")[machine.command("venv").index("--python") + 1] == environ[VARIABLE]
    )


def test_the_resolution_ignores_what_no_index_has_and_keeps_numpy(tmp_path, environ):
    machine = Machine()
    StackBuilder(tmp_path, Installer(environ, run=machine)).resolve(SPEC)
    ignored = [line.partition(";")[0] for line in machine.files["--override"].splitlines()]
    assert ignored == ["torch", "triton"]
    assert machine.files["--constraint"] == "numpy==1.26.4\n"
    assert machine.files["--output-file"] == "numpy==1.26.4\nsafetensors==0.5.0\n"


@pytest.mark.processes
def test_the_environment_sees_the_folders_of_the_machine(tmp_path, environ):
    folder = tmp_path / "machine's" / "dist-packages"
    folder.mkdir(parents=True)
    (folder / "torch_of_the_machine.py").write_text("")
    stack = StackBuilder(tmp_path, Installer(environ, run=Machine(folder=str(folder)))).build(SPEC)
    site_packages = next(Path(stack.python).parents[1].glob("lib/*/site-packages"))
    code = f"import site; site.addsitedir({str(site_packages)!r}); import torch_of_the_machine"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_another_torch_is_another_stack(tmp_path, environ):
    first = StackBuilder(tmp_path, Installer(environ, run=Machine())).build(SPEC)
    again = StackBuilder(tmp_path, Installer(environ, run=Machine())).build(SPEC)
    changed = Machine({**MACHINE, "torch": "2.7.0"})
    other = StackBuilder(tmp_path, Installer(environ, run=changed)).build(SPEC)
    assert first == again
    assert first.lock_digest != other.lock_digest
    assert first.python != other.python


def test_another_build_of_the_same_version_is_another_stack(tmp_path, environ):
    first = StackBuilder(tmp_path, Installer(environ, run=Machine())).build(SPEC)
    other = StackBuilder(tmp_path, Installer(environ, run=Machine(build="git_version = 2"))).build(
        SPEC
    )
    assert first.lock == other.lock
    assert first.lock_digest != other.lock_digest


def test_packages_that_moved_are_another_environment_of_the_same_lock(tmp_path, environ):
    first = StackBuilder(tmp_path, Installer(environ, run=Machine())).build(SPEC)
    moved = StackBuilder(
        tmp_path, Installer(environ, run=Machine(folder="/opt/dist-packages"))
    ).build(SPEC)
    assert first.lock_digest == moved.lock_digest
    assert first.python != moved.python


def test_no_receipt_answers_for_a_torch_that_may_change(tmp_path, environ):
    dependencies = Dependencies()
    StackBuilder(tmp_path, Installer(environ, run=Machine(), dependencies=dependencies)).build(SPEC)
    assert list(dependencies.unrepeatable)


def programs(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_the_first_interpreter_on_the_path_that_has_torch_is_taken(tmp_path):
    without, having = programs(tmp_path / "a", "python3"), programs(tmp_path / "b", "python")

    def run(command, _text, _env):
        packages = {"numpy": "2.0"} if command[0].startswith(str(without)) else MACHINE
        return CompletedProcess(command, 0, facts(packages, "/x"), "")

    system = find_system_torch({"PATH": f"{without}:{having}"}, run)
    assert (system.python, system.version) == (str(having / "python"), "3.12.3")


def test_the_message_without_a_torch_names_every_attempt_and_the_variable(tmp_path):
    folder = programs(tmp_path / "bin", "python3", "python")

    def run(command, _text, _env):
        if command[0].endswith("python"):
            return CompletedProcess(command, 1, "", "Traceback\nImportError: no module\n")
        return CompletedProcess(command, 0, facts({}, "/x"), "")

    with pytest.raises(StackMachineError) as caught:
        find_system_torch({"PATH": str(folder)}, run)
    text = str(caught.value)
    assert f"{folder / 'python3'}: it has no torch" in text
    assert f"{folder / 'python'}: it did not list its packages (ImportError: no module)" in text
    assert VARIABLE in text


def test_a_named_interpreter_that_does_not_run_is_not_replaced_by_another(tmp_path):
    def run(command, _text, _env):
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(StackMachineError, match="No such file"):
        find_system_torch({"PATH": str(tmp_path), VARIABLE: str(tmp_path / "gone")}, run)

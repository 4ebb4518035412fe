"""Builder of stacks with a fake uv: locks, environments, damage and concurrent runs."""

import json
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from samebits.base.errors import StackError
from samebits.records.record import read_record
from samebits.stacks import build
from samebits.stacks.build import Stack, StackBuilder, release_pattern, requirements
from samebits.stacks.installer import Commands, Installer
from samebits.stacks.uv import environment as uv_environment
from samebits_wire.places import PROBE_PACKAGES
from samebits_wire.seal import sealed, sealed_lines
from tests.support.builders import built_stack, stack_spec
from tests.support.wheels import locked, pylock

PINS = "numpy==2.3.1\ntorch==2.13.0\ntransformers==4.48.3\n"
LOCK = locked(PINS)
SPEC = stack_spec("4.48")


def put_blake3(folder):
    (folder / "blake3").mkdir(parents=True)
    for name in ("__init__.py", "blake3.cpython-311-x86_64-linux-gnu.so"):
        (folder / "blake3" / name).write_text("")


class Uv:
    """Replaces the commands that a builder runs, and writes the files that they would write."""

    def __init__(self, lock=LOCK):
        self.lock = lock
        self.calls = []
        self.failing = {}
        self.during_sync = lambda aside: None
        self.during_install = lambda aside: None

    def __call__(self, command, text, env):
        what = self.name(command)
        self.calls.append((what, command, text, dict(env)))
        if what in self.failing:
            return CompletedProcess(command, 1, "", self.failing[what])
        return CompletedProcess(command, 0, self.does(what, command), "")

    def name(self, command):
        if command[1].endswith("architectures.py"):
            return "architectures"
        return next(word for word in command if word in ("compile", "venv", "sync", "install"))

    def does(self, what, command):
        if what == "compile":
            return pylock(self.lock)
        if what == "venv":
            python = build.interpreter_of(Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.touch()
        elif what == "sync":
            assert Path(command[-1]).read_text("utf-8") == self.lock
            self.during_sync(Path(command[-1]).parent)
        elif what == "install":
            folder = Path(command[command.index("--target") + 1])
            put_blake3(folder)
            self.during_install(folder)
        else:
            return json.dumps({"architectures": ["gpt2", "llama"]})
        return ""

    @property
    def names(self):
        return [what for what, *_ in self.calls]

    def command(self, what):
        return next(command for name, command, *_ in self.calls if name == what)


@pytest.fixture
def uv():
    return Uv()


def builder(root, uv, environ=None, stacks=None, **options):
    return StackBuilder(root, Installer(environ or {}, run=uv, **options), stacks=stacks)


def folder_of(stack):
    return next(path for path in Path(stack.python).parents if path.parent.name == "stacks")


def test_a_stack_is_resolved_then_built(tmp_path, uv):
    stack = builder(tmp_path, uv).build(SPEC)
    assert uv.names == ["compile", "venv", "sync", "architectures", "install"]
    assert (stack.id, stack.transformers, stack.lock) == ("4.48", "4.48.3", LOCK)
    assert stack.packages == {"numpy": "2.3.1", "torch": "2.13.0", "transformers": "4.48.3"}
    assert stack.architectures == ("gpt2", "llama")
    assert Path(stack.python).is_file()
    assert uv.calls[0][2] == "torch==2.13.0\ntransformers==4.48.*"
    assert uv.command("venv")[uv.command("venv").index("--python") + 1] == "3.11"


def test_the_lock_is_kept_and_the_environment_used_again(tmp_path, uv):
    first = builder(tmp_path, uv).build(SPEC)
    uv.calls.clear()
    uv.lock = locked(PINS.replace("4.48.3", "4.48.9"))  # a new release
    assert builder(tmp_path, uv).build(SPEC) == first
    assert uv.calls == []


def test_two_projects_share_a_stack_and_not_their_locks(tmp_path, uv):
    shared = tmp_path / "cache" / "stacks"
    first = builder(tmp_path / "one", uv, stacks=shared).build(SPEC)
    uv.calls.clear()
    assert builder(tmp_path / "two", uv, stacks=shared).build(SPEC) == first
    assert uv.names == ["compile"]  # each project has its own lock, both name the same environment
    assert Path(first.python).is_relative_to(shared)
    assert [len(list((tmp_path / name / "locks").iterdir())) for name in ("one", "two")] == [1, 1]


def test_an_old_lock_is_resolved_again_where_its_age_matters(tmp_path, uv):
    builder(tmp_path, uv).resolve(SPEC)
    (lock,) = (tmp_path / "locks").iterdir()
    os.utime(lock, (0, 0))
    newer = uv.lock = locked(PINS.replace("4.48.3", "4.48.9"))
    assert builder(tmp_path, uv).resolve(SPEC) == LOCK
    assert builder(tmp_path, uv, max_age=60).resolve(SPEC) == newer
    uv.calls.clear()
    assert builder(tmp_path, uv, max_age=60).resolve(SPEC) == newer  # it is new now
    assert uv.calls == []


def test_without_a_network_an_old_lock_serves(tmp_path, uv):
    builder(tmp_path, uv).resolve(SPEC)
    (lock,) = (tmp_path / "locks").iterdir()
    os.utime(lock, (0, 0))
    uv.failing["compile"] = "error: dns error"
    assert builder(tmp_path, uv, max_age=60).resolve(SPEC) == LOCK
    with pytest.raises(StackError, match="dns error"):
        builder(tmp_path, uv, max_age=60, upgrade=True).resolve(SPEC)


def test_a_missing_uv_is_named_with_its_remedy(tmp_path, uv, monkeypatch):
    def missing():
        raise FileNotFoundError

    monkeypatch.setattr(build.uv, "find_uv_bin", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="pip install uv"):
        builder(tmp_path, uv).build(SPEC)


def test_what_lies_below_a_release_is_asked_of_the_resolver_and_kept(tmp_path, uv):
    first = builder(tmp_path, uv)
    assert first.version(SPEC) == "4.48.3"
    assert first.below(stack_spec("5.x"), "5.0", "4.48.0") == "4.48.3"
    assert [text for _, _, text, _ in uv.calls] == [
        "torch==2.13.0\ntransformers==4.48.*",
        "torch==2.13.0\ntransformers>=4.48.0,<5.0",
    ]
    uv.calls.clear()
    second = builder(tmp_path, uv)
    assert (second.version(SPEC), second.below(stack_spec("5.x"), "5.0", "4.48.0")) == (
        "4.48.3",
        "4.48.3",
    )
    assert uv.calls == []
    second.below(stack_spec("5.x"), "5.1", "4.48.0")
    assert uv.names == ["compile"]


def test_releases_of_another_package_are_asked_with_the_rest_of_the_stack_as_it_is(tmp_path, uv):
    uv.lock = locked(PINS.replace("2.13.0", "2.13.0+cpu") + "tokenizers==0.21.4\n")
    first = builder(tmp_path, uv)
    spec = stack_spec("5.x", packages=("accelerate", "tokenizers>=0.20"))
    assert first.installed(spec, "tokenizers") == "0.21.4"
    assert first.installed(spec, "torch") == "2.13.0"  # without the +cpu of a build
    assert first.installed(spec, "peft") is None
    assert first.newest(spec, "tokenizers>=0.20,<0.22") == "0.21.4"
    assert uv.calls[-1][2] == (
        "torch==2.13.0\ntransformers==5.*\naccelerate\ntokenizers>=0.20,<0.22"
    )
    uv.failing["compile"] = "no solution found"
    assert first.newest(spec, "tokenizers<0.20") is None


def test_an_upgrade_resolves_again_and_leaves_the_old_environment(tmp_path, uv):
    first = builder(tmp_path, uv).build(SPEC)
    uv.lock = locked(PINS.replace("4.48.3", "4.48.9"))
    second = builder(tmp_path, uv, upgrade=True).build(SPEC)
    assert second.transformers == "4.48.9"
    assert second.lock_digest != first.lock_digest
    assert folder_of(second) != folder_of(first)
    assert Path(first.python).is_file()
    uv.calls.clear()
    assert builder(tmp_path, uv).build(SPEC) == second  # the new lock is cached
    assert uv.calls == []


def test_an_upgrade_that_finds_nothing_newer_builds_nothing(tmp_path, uv):
    first = builder(tmp_path, uv).build(SPEC)
    uv.calls.clear()
    assert builder(tmp_path, uv, upgrade=True).build(SPEC) == first
    assert uv.names == ["compile"]


@pytest.mark.parametrize(
    "other",
    [
        stack_spec("4.48", transformers="4.48.0"),
        stack_spec("4.48", torch="2.12.0"),
        stack_spec("4.48", python="3.12"),
        stack_spec("4.48", packages=("accelerate>=1",)),
    ],
    ids=["transformers", "torch", "python", "packages"],
)
def test_another_question_is_resolved_anew(tmp_path, uv, other):
    builder(tmp_path, uv).resolve(SPEC)
    builder(tmp_path, uv).resolve(other)
    assert uv.names == ["compile", "compile"]
    builder(tmp_path, uv).resolve(SPEC)
    assert len(uv.calls) == 2


def test_exclude_newer_is_passed_on_and_is_part_of_the_question(tmp_path, uv):
    builder(tmp_path, uv).resolve(SPEC)
    assert "--exclude-newer" not in uv.command("compile")
    builder(tmp_path, uv, exclude_newer="2026-01-01").resolve(SPEC)
    command = uv.calls[1][1]
    assert command[command.index("--exclude-newer") + 1] == "2026-01-01"


@pytest.mark.parametrize(
    ("version", "pattern"),
    [("4.48", "4.48.*"), ("4.48.0", "4.48.0"), ("5.x", "5.*"), ("4.48.x", "4.48.*"), ("5", "5.*")],
)
def test_fewer_than_three_numbers_are_a_family(version, pattern):
    assert release_pattern(version) == pattern


def test_torch_is_asked_for_like_transformers():
    spec = stack_spec("5.x", torch="2.x", packages=("accelerate>=1",))
    assert requirements(spec) == ["torch==2.*", "transformers==5.*", "accelerate>=1"]


@pytest.mark.parametrize("step", ["compile", "venv", "sync", "architectures"])
def test_a_failure_says_uv_s_words_and_what_to_do(tmp_path, uv, step):
    uv.failing[step] = "\x1b[31m!\x1b[0m No solution found: numpy is too old\n"
    with pytest.raises(StackError) as caught:
        builder(tmp_path, uv).build(SPEC)
    text = str(caught.value)
    assert text.startswith("environment 4.48: ")
    assert "! No solution found: numpy is too old\n" in text
    assert "Change the environment in matrix.yaml" in text
    assert "\x1b" not in text
    uv.failing.clear()  # the failure leaves nothing that breaks a second build
    assert builder(tmp_path, uv).build(SPEC).transformers == "4.48.3"


def test_words_on_standard_output_are_said_if_there_are_no_others(tmp_path):
    def run(command, text, env):
        return CompletedProcess(command, 2, "out of reach", "")

    with pytest.raises(StackError, match="out of reach"):
        StackBuilder(tmp_path, Installer({}, run=run)).resolve(SPEC)


def test_pip_s_links_are_passed_on_where_uv_has_none_of_its_own(tmp_path, uv):
    builder(tmp_path, uv, {"PIP_FIND_LINKS": "/wheels"}).resolve(SPEC)
    assert uv.calls[0][3]["UV_FIND_LINKS"] == "/wheels"
    environ = {"PIP_FIND_LINKS": "/wheels", "UV_FIND_LINKS": "/mine"}
    assert uv_environment(environ)["UV_FIND_LINKS"] == "/mine"
    assert "UV_FIND_LINKS" not in uv_environment({"PATH": "/bin"})


def test_other_links_are_another_question(tmp_path, uv):
    builder(tmp_path, uv).resolve(SPEC)
    builder(tmp_path, uv, {"UV_FIND_LINKS": "/wheels"}).resolve(SPEC)
    assert uv.names == ["compile", "compile"]


def test_no_foreign_environment_reaches_uv():
    foreign = {"VIRTUAL_ENV": "/v", "PYTHONPATH": "/p", "PYTHONHOME": "/h", "PATH": "/bin"}
    assert uv_environment(foreign) == {"PATH": "/bin"}
    assert len(foreign) == 4


def with_stamp(content):
    return lambda stack, stamp: stamp.write_bytes(content)


def with_other_id(stack, stamp):
    other = stack.model_copy(update={"id": "5.0"})
    stamp.write_text(sealed(other.model_dump_json()), "utf-8")


DAMAGES = {
    "no stamp": lambda stack, stamp: stamp.unlink(),
    "half a stamp": lambda stack, stamp: stamp.write_bytes(stamp.read_bytes()[:50]),
    "empty stamp": with_stamp(b""),
    "no fields": with_stamp(b"{}"),
    "binary": with_stamp(b"\xff\xfe"),
    "deep": with_stamp(b"[" * 100_000),
    "one field": with_stamp(b'{"id": "4.48"}'),
    "no interpreter": lambda stack, stamp: Path(stack.python).unlink(),
    "other id": with_other_id,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_torn_folder_is_built_again(tmp_path, uv, damage):
    stack = builder(tmp_path, uv).build(SPEC)
    damage(stack, folder_of(stack) / "samebits-stack.json")
    uv.calls.clear()
    again = builder(tmp_path, uv).build(SPEC)
    assert uv.names == ["venv", "sync", "architectures", "install"]
    assert (again.lock, again.packages) == (stack.lock, stack.packages)
    assert again == stack or damage is DAMAGES["no interpreter"]
    assert Path(again.python).is_file()
    assert read_record(folder_of(again) / "samebits-stack.json", Stack) == again


def test_a_lost_race_is_no_error_and_leaves_nothing_aside(tmp_path, uv):
    def another_run_is_faster(aside):
        uv.during_sync = lambda aside: None
        builder(tmp_path, Uv()).build(SPEC)
        assert aside.is_dir()

    uv.during_sync = another_run_is_faster
    stack = builder(tmp_path, uv).build(SPEC)
    assert Path(stack.python).is_file()
    assert [path.name for path in (tmp_path / "stacks").iterdir()] == [folder_of(stack).name]


def test_what_a_stack_prints_is_short():
    stack = built_stack("5.0", *(f"model{i}" for i in range(400)))
    assert "model7" not in repr(stack)


def test_probes_are_identified_by_their_source(tmp_path):
    (tmp_path / "probe_a.py").write_text("a", "utf-8")
    before = build.probes_digest(tmp_path)
    (tmp_path / "ruff.toml").write_text("", "utf-8")
    assert build.probes_digest(tmp_path) == before
    (tmp_path / "probe_b.py").write_text("", "utf-8")
    assert build.probes_digest(tmp_path) != before


# what a run that was killed, or a power cut, left


@pytest.mark.parametrize(
    "left",
    [
        b"",
        b"numpy==2",
        b"\xff\xfe",
        sealed_lines("torch==2.13.0\n").encode(),
        LOCK.encode(),
        sealed_lines(f"--index-url=https://elsewhere/\n{LOCK}").encode(),
    ],
    ids=["empty", "cut", "binary", "part", "no seal", "an option of uv"],
)
def test_a_lock_that_is_not_whole_is_resolved_anew(tmp_path, uv, left):
    builder(tmp_path, uv).build(SPEC)
    (lock,) = (tmp_path / "locks").iterdir()
    lock.write_bytes(left)
    assert builder(tmp_path, uv).resolve(SPEC) == LOCK
    assert uv.names.count("compile") == 2
    assert lock.read_text() == sealed_lines(LOCK)


@pytest.mark.parametrize(
    "said", ["", "Welcome!", "[]", "{}", '{"architectures": 3}', "[" * 100_000]
)
def test_an_interpreter_that_says_nonsense_fails_its_stack_alone(tmp_path, uv, said):
    does = uv.does
    uv.does = lambda what, command: said if what == "architectures" else does(what, command)
    with pytest.raises(StackError, match="did not list its architectures"):
        builder(tmp_path, uv).build(SPEC)
    assert not list((tmp_path / "stacks").iterdir())


def test_what_a_package_prints_before_the_answer_is_none_of_it(tmp_path, uv):
    does = uv.does
    uv.does = lambda what, command: (
        f"Welcome!\n{does(what, command)}" if what == "architectures" else does(what, command)
    )
    assert builder(tmp_path, uv).build(SPEC).architectures == ("gpt2", "llama")


def test_environments_that_were_never_finished_go_after_a_day(tmp_path, uv):
    old, young, foreign = (
        tmp_path / "stacks" / f"4.48-{name}.tmp" for name in (f"o.{'0' * 12}", f"y.{'1' * 12}", "m")
    )
    for folder in (old, young, foreign):
        (folder / "bin").mkdir(parents=True)
    for folder in (old, foreign):
        os.utime(folder, (0, 0))
    builder(tmp_path, uv).build(SPEC)
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()


SLEEPS = "import signal, time; print(1, flush=True); time.sleep(60)"


@pytest.mark.processes
@pytest.mark.parametrize("ignores", [False, True])
def test_a_command_that_runs_is_ended_with_the_run_and_none_follows(ignores):
    code = SLEEPS.replace("print", "signal.signal(signal.SIGTERM, signal.SIG_IGN); print")
    commands = Commands()
    with ThreadPoolExecutor(1) as pool:
        command = [sys.executable, "-c", code if ignores else SLEEPS]
        running = pool.submit(commands, command, "", os.environ)
        while not commands._running:
            time.sleep(0.01)
        time.sleep(1 if ignores else 0)  # until it ignores the signal
        start = time.monotonic()
        commands.end()
        assert running.result(10).returncode in (-signal.SIGKILL, -signal.SIGTERM)
        assert time.monotonic() - start < 5
    assert commands(["true"], "", {}).returncode == 1


def packages_of(stack):
    return folder_of(stack) / PROBE_PACKAGES


def test_the_probes_packages_are_no_part_of_what_a_stack_resolves(tmp_path, uv):
    stack = builder(tmp_path, uv, exclude_newer="2024-01-01").build(SPEC)
    assert (packages_of(stack) / "blake3").is_dir()
    command = uv.command("install")
    assert command[command.index("--python") + 1] == stack.python
    assert "--no-deps" in command
    assert "--exclude-newer" not in command  # any release hashes alike
    assert "blake3" not in stack.lock
    assert "blake3" not in stack.packages
    assert not any("blake3" in text for what, _, text, _ in uv.calls if what == "compile")


def test_a_stack_of_an_earlier_version_gets_the_packages_and_stays_as_it_is(tmp_path, uv):
    stack = builder(tmp_path, uv).build(SPEC)
    shutil.rmtree(packages_of(stack))
    uv.calls.clear()
    assert builder(tmp_path, uv).build(SPEC) == stack
    assert uv.names == ["install"]
    assert (packages_of(stack) / "blake3").is_dir()
    uv.calls.clear()
    assert builder(tmp_path, uv).build(SPEC) == stack
    assert uv.names == []


@pytest.mark.parametrize(
    "lost", ["blake3", "blake3/__init__.py", "blake3/blake3.cpython-311-x86_64-linux-gnu.so"]
)
def test_packages_that_are_not_whole_are_installed_again(tmp_path, uv, lost):
    path = packages_of(builder(tmp_path, uv).build(SPEC)) / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    uv.calls.clear()
    builder(tmp_path, uv).build(SPEC)
    assert uv.names == ["install"]
    assert path.exists()
    assert not list((tmp_path / "stacks").glob("*.tmp"))


def test_packages_that_cannot_be_installed_fail_the_stack_in_plain_words(tmp_path, uv):
    uv.failing["install"] = "no wheel"
    with pytest.raises(StackError) as caught:
        builder(tmp_path, uv).build(SPEC)
    text = str(caught.value)
    assert text.startswith(
        "environment 4.48: the package blake3, with which samebits hashes tensors, "
    )
    assert text.endswith("\nno wheel")
    assert "UV_FIND_LINKS" in text
    uv.failing.clear()
    uv.calls.clear()
    assert (packages_of(builder(tmp_path, uv).build(SPEC)) / "blake3").is_dir()
    assert uv.names == ["install"]  # the environment itself was whole


def test_two_runs_that_install_the_packages_at_once_agree(tmp_path, uv):
    def other_run(aside):
        target = aside.with_name(aside.name.rpartition(".")[0].rpartition(".")[0])
        put_blake3(target / PROBE_PACKAGES)

    uv.during_install = other_run
    stack = builder(tmp_path, uv).build(SPEC)
    assert (packages_of(stack) / "blake3").is_dir()
    assert not list((tmp_path / "stacks").glob("*.tmp"))


RECORDED_PINS = "torch==2.13.0\ntransformers==4.57.6\n"
RECORDED_LOCK = locked(RECORDED_PINS)


def test_a_recorded_environment_is_built_of_exactly_its_packages(tmp_path, uv):
    uv.lock = RECORDED_LOCK
    stack = builder(tmp_path, uv).rebuild("recorded", RECORDED_PINS, "3.11")
    assert "--no-deps" in uv.command("compile")  # it gets hashes and nothing else
    assert (stack.id, stack.lock, stack.transformers) == ("recorded", RECORDED_LOCK, "4.57.6")
    uv.calls.clear()
    assert builder(tmp_path, uv).rebuild("recorded", RECORDED_PINS, "3.11") == stack
    assert uv.names == []
    assert builder(tmp_path, uv).rebuild("recorded", RECORDED_PINS, "3.12").python != stack.python


def test_the_probes_packages_of_a_users_interpreter_lie_elsewhere(tmp_path, uv):
    python = str(tmp_path / "project" / ".venv" / "bin" / "python")
    folder = builder(tmp_path, uv).probe_packages(python, "3.11.7")
    assert (folder / "blake3").is_dir()
    assert not folder.is_relative_to(tmp_path / "project")
    command = uv.command("install")
    assert command[command.index("--python") + 1] == python
    uv.calls.clear()
    assert builder(tmp_path, uv).probe_packages(python, "3.11.7") == folder
    assert uv.names == []
    assert builder(tmp_path, uv).probe_packages(python, "3.12.0") != folder


def put_models(aside):
    folder = aside / "lib" / "python3.11" / "site-packages" / "transformers" / "models" / "llama"
    folder.mkdir(parents=True)
    text = "class LlamaModel(Base):\n    pass\n\n\nOldLlama = LlamaModel\n"
    (folder / "modeling_llama.py").write_text(text)


def test_a_built_release_says_whether_it_knows_a_type_or_a_class(tmp_path, uv):
    uv.during_sync = put_models
    made = builder(tmp_path, uv)
    assert [made.may_know(SPEC, name) for name in ("llama", "LlamaModel", "OldLlama")] == [True] * 3
    assert not any(made.may_know(SPEC, name) for name in ("lama", "Llama", "LamaModel", "("))
    assert uv.names.count("sync") == 1


@pytest.mark.parametrize("step", ["compile", "sync"])
def test_a_release_that_is_not_built_may_know_everything(tmp_path, uv, step):
    uv.failing[step] = "no network"
    assert builder(tmp_path, uv).may_know(SPEC, "lama")


def test_a_release_without_sources_may_have_any_class(tmp_path, uv):
    uv.during_sync = lambda aside: (aside / "lib" / "python3.11" / "site-packages").mkdir(
        parents=True
    )
    assert builder(tmp_path, uv).may_know(SPEC, "LamaModel")

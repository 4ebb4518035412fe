"""samebits record and verify over real releases: the environments of stacks are those of a project."""

import asyncio
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from samebits import cli
from samebits.gate import command as gate
from samebits.gate.lockfile import read_lock
from samebits.records.verification import Kept
from tests.real.conftest import NEW, OLD, share_stacks

PLANTED = "modeling_planted.py"


@pytest.fixture
def project(tmp_path, planted, stacks, monkeypatch):
    """Make a project with planted models that are recorded under the old release."""
    share_stacks(tmp_path / ".samebits")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)

    class Project:
        folder = tmp_path

        def add(self, *defects):
            for defect in defects:
                shutil.copytree(planted(defect), tmp_path / name_of(defect))
            return [name_of(defect) for defect in defects]

        def record(self, *names, stack=OLD, more=(), code=0, kernels=None):
            words = ["record", *names, "--trust-remote-code", *more]
            return self._run(words, stack, code, kernels)

        def verify(self, *names, stack=NEW, more=(), code=0):
            said = self._run(["verify", *names, "--format", "json", *more], stack, code, None)
            answers = json.loads(said)
            assert answers["exit_code"] == code
            return {model["model"].partition("/")[0]: model for model in answers["models"]}

        def _run(self, words, stack, code, kernels):
            python = [] if stack is None else ["--python", stacks[stack].python]
            if kernels is None:
                assert cli.main([*words, *python], os.environ) == code
                captured = self.capsys.readouterr()
                self.errors = captured.err
                return captured.out
            options = parsed([*words, *python])
            assert (
                asyncio.run(gate.run_record(options, os.environ, lambda _: None, kernels=kernels))
                == code
            )
            return ""

    return Project()


@pytest.fixture(autouse=True)
def printed(project, capsys):
    project.capsys = capsys


def parsed(words):
    command, *rest = words
    return cli.parsers()[command].parse_args(rest)


def name_of(defect):
    return defect.replace(" ", "-")


def test_the_environment_of_a_project_is_found_and_unchanged_it_keeps_the_bits(project, stacks):
    (project.folder / ".venv").symlink_to(Path(stacks[OLD].python).parents[1])
    project.record(*project.add("none"), stack=None)
    answers = project.verify(stack=None)["none"]
    assert (answers["verdict"], answers["rebuild"], answers["packages"]) == (
        "identical",
        "not needed",
        [],
    )
    assert answers["n_tensors"] > 20
    text = (project.folder / "samebits.lock").read_text()
    assert len(text) < 8_000
    assert str(project.folder) not in text


def test_a_planted_change_diverges_and_its_clean_twin_is_not_accused(project):
    project.record(*project.add("first layer", "none", "raises", "clock"))  # all sound there
    answers = project.verify(code=1)
    planted, clean = answers["first-layer"], answers["none"]
    assert (planted["verdict"], planted["rebuild"], planted["repeats"]) == (
        "diverged",
        "done",
        True,
    )
    first = planted["first"]
    assert (first["signal"], first["kind"]) == ("hidden_states", "differs")
    assert (first["subject"]["prompt"], first["subject"]["layer"]) == ("short", 1)
    assert first["subject"]["tensor"] == "layers.0"
    assert planted["packages"][0]["name"] == "transformers"
    assert clean["verdict"] == "identical"
    raises = answers["raises"]
    assert (raises["verdict"], raises["failure"]["type"]) == ("failed", "ValueError")
    assert answers["clock"]["verdict"] == "unstable"
    left_out = project.verify("first-layer", code=1, more=["--no-rebuild"])["first-layer"]
    assert (left_out["verdict"], left_out["rebuild"]) == ("undecided", "left out")
    assert left_out["repeats"] is None
    assert left_out["first"]["subject"]["layer"] == 1


@pytest.mark.long
def test_code_that_changed_in_the_checkpoint_is_found_in_git(project):
    """The same environment, and a model's author at work: the recorded code is in a commit."""
    project.record(*project.add("none"))
    git = ["git", "-C", str(project.folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    ignored = project.folder / ".gitignore"
    ignored.write_text(".samebits\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "recorded"]):
        subprocess.run([*git, *words], check=True)
    code = project.folder / "none" / PLANTED
    text = code.read_text()
    code.write_text(
        text.replace("torch.tanh(self.proj(hidden_states))", "self.proj(hidden_states)")
    )
    answers = project.verify(stack=OLD, code=1)["none"]
    assert (answers["verdict"], answers["repeats"], answers["files"]) == (
        "diverged",
        True,
        [PLANTED],
    )
    code.write_text(
        text.replace("torch.tanh(self.proj(hidden_states))", "self.proj(hidden_states).tanh()")
    )
    answers = project.verify(stack=OLD)["none"]
    assert (answers["verdict"], answers["files"]) == ("identical", [PLANTED])


def test_code_that_changed_and_is_nowhere_kept_is_undecided_and_weights_diverge(project):
    project.record(*project.add("none", "first layer"))
    code = project.folder / "none" / PLANTED
    code.write_text(code.read_text().replace("torch.tanh(", "1.0 * torch.sinh("))
    weights = project.folder / "first-layer" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    answers = project.verify(stack=OLD, code=1)
    assert (answers["none"]["verdict"], answers["none"]["rebuild"]) == ("undecided", "not possible")
    changed = answers["first-layer"]
    assert (changed["verdict"], changed["first"]["signal"]) == ("diverged", "weights")
    assert changed["first"]["name"] == "layers.2.proj.weight"


X86 = platform.machine() in ("x86_64", "AMD64")
OTHER_CPU = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}


@pytest.fixture(scope="session")
def llama(tmp_path_factory, run_in):
    """Make a llama whose sums are long enough for the kernels of CPUs to differ."""
    folder = tmp_path_factory.mktemp("llama")
    config = "{hidden_size: 256, intermediate_size: 512, num_attention_heads: 4, num_hidden_layers: 2, vocab_size: 512}"
    (folder / "matrix.yaml").write_text(
        f"environments: ['{OLD}']\ndefaults: {{questions: []}}\n"
        f"models: {{llama: {{build: {{architecture: llama, config: {config}}}}}}}\n"
    )
    run_in(folder)
    (made,) = (path for path in (folder / ".samebits" / "checkpoints").iterdir() if path.is_dir())
    return made


@pytest.mark.skipif(not X86, reason="the settings are those of x86")
def test_a_record_of_another_machine_is_no_failure(project, llama):
    shutil.copytree(llama, project.folder / "llama")
    project.record("llama", kernels=OTHER_CPU)
    same = project.verify(stack=OLD)["llama"]
    assert same["verdict"] == "other machine"
    assert (same["other_machine"], same["packages"]) == (True, [])
    assert same["n_differ"] > 0
    newer = project.verify()["llama"]
    assert newer["verdict"] in ("other machine", "rounding")  # 5.x rounds otherwise on some CPUs
    assert (newer["rebuild"], newer["repeats"]) == ("done", False)


@pytest.mark.long
@pytest.mark.skipif(not X86, reason="the settings are those of x86")
def test_another_function_is_told_from_another_machine(project):
    project.record(*project.add("first layer"), kernels=OTHER_CPU)
    answers = project.verify(code=1)["first-layer"]
    assert (answers["verdict"], answers["other_machine"]) == ("diverged", True)


@pytest.mark.long
def test_a_real_upgrade_of_a_library_model(project, llama):
    shutil.copytree(llama, project.folder / "llama")
    project.record("llama")
    lock = read_lock(project.folder / "samebits.lock")
    (entry,) = lock.models.values()
    assert {"weights", "buffers", "inv_freq", "logits", "decode", "greedy"} <= entry.signals.keys()
    assert Kept(project.verify()["llama"]["verdict"]).passes


def test_a_model_that_does_not_reproduce_itself_is_not_recorded(project):
    (name,) = project.add("clock")
    project.record(name, stack=NEW, code=1)
    assert "clock/float32-default was not recorded: unstable" in project.errors
    assert not (project.folder / "samebits.lock").exists()


@pytest.mark.long
def test_an_update_shows_what_changes_before_it_writes(project):
    project.record(*project.add("first layer", "none"))
    before = (project.folder / "samebits.lock").read_text()
    shutil.rmtree(project.folder / "none")
    assert project.verify(stack=OLD, code=3)["none"]["verdict"] == "not there"
    project.record("--update", "--dry-run", stack=NEW)
    assert "- none/float32-default: removed" in project.errors
    assert "~ first-layer/float32-default: hidden_states 9 of 12" in project.errors
    assert (project.folder / "samebits.lock").read_text() == before
    project.record("--update", stack=NEW)
    after = read_lock(project.folder / "samebits.lock")
    assert list(after.models) == ["first-layer/float32-default"]
    assert len(after.environments) == 1
    assert project.verify()["first-layer"]["verdict"] == "identical"

"""The project in examples/downstream: what its CI says at each step of an upgrade.

To be run after a change of samebits/gate/ or of the example.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from samebits.base.patches import patched_files
from samebits.gate.lockfile import read_lock
from samebits.matrix.spec import StackSpec
from samebits.records.verification import Kept
from samebits.stacks.build import StackBuilder
from samebits.stacks.installer import Installer
from tests.real.conftest import NEW, ROOT, SHARED, WORK, share_stacks

EXAMPLE = ROOT / "examples" / "downstream"
NAME = "model/float32-default"
PINNED, NEXT = "4.57", "5.2"


@pytest.fixture(scope="module")
def environments():
    """The environments that the project has one after the other."""
    builder = StackBuilder(WORK, Installer(os.environ), stacks=SHARED["stacks"])
    return {
        name: Path(
            builder.build(
                StackSpec(id=name, transformers=name, torch="2.13.0", python="3.11")
            ).python
        ).parents[1]
        for name in (PINNED, NEXT, NEW)
    }


class Project:
    """A checkout of the example, whose .venv is an environment of samebits."""

    def __init__(self, folder, environments):
        self.folder, self._environments = folder, environments

    def install(self, release):
        venv = self.folder / ".venv"
        venv.unlink(missing_ok=True)
        venv.symlink_to(self._environments[release])

    def run(self, *words, code):
        environ = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
        command = [sys.executable, "-m", "samebits", *words]
        environ["PYTHONPATH"] = str(ROOT)  # in place of uvx
        ended = subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    def ci(self, code):
        """Run the step of ci.yml that guards the bits; return its facts."""
        steps = yaml.safe_load((self.folder / "ci.yml").read_text())["steps"]
        (step,) = [s["run"] for s in steps if "samebits" in s.get("run", "")]
        uvx, samebits, *words = shlex.split(step)
        assert (uvx, samebits) == ("uvx", "samebits")
        content = json.loads(self.run(*words, "--format", "json", code=code).stdout)
        (model,) = content["models"]
        return model

    def repair(self):
        for name, text in patched_files(self.folder / "model", [EXAMPLE / "repair.diff"]).items():
            (self.folder / "model" / name).write_text(text)


@pytest.fixture
def project(tmp_path, environments):
    folder = tmp_path / "downstream"
    shutil.copytree(EXAMPLE, folder)
    share_stacks(folder / ".samebits")
    return Project(folder, environments)


def test_an_upgrade_step_by_step(project):
    project.install(PINNED)
    kept = project.ci(code=0)
    assert Kept(kept["verdict"]) in (Kept.IDENTICAL, Kept.OTHER_MACHINE)
    if kept["verdict"] == Kept.OTHER_MACHINE:  # the committed lock is that of another CPU
        project.run("record", "--update", code=0)
        assert project.ci(code=0)["verdict"] == "identical"

    project.install(NEXT)
    broken = project.ci(code=1)
    assert broken["verdict"] == "unstable"
    assert "rotary.inv_freq" in broken["reason"]
    assert {"name": "transformers", "recorded": "4.57.6"}.items() <= broken["packages"][0].items()

    project.install(PINNED)
    project.repair()
    before = read_lock(project.folder / "samebits.lock").models[NAME]
    after = record_again(project, before)
    assert {"logits", "hidden_states", "weights"} <= after.signals.keys()
    for signal in ("logits", "hidden_states", "weights"):
        assert after.signals[signal] == before.signals[signal]  # the repair means the same
    assert project.ci(code=0)["verdict"] == "identical"

    for release in (NEXT, NEW):
        project.install(release)
        assert Kept(project.ci(code=0)["verdict"]).passes


def record_again(project, before):
    shown = project.run("record", "--update", "--dry-run", code=0).stderr
    assert f"~ {NAME}: " in shown
    assert read_lock(project.folder / "samebits.lock").models[NAME] == before
    project.run("record", "--update", code=0)
    return read_lock(project.folder / "samebits.lock").models[NAME]

"""What the repository offers to other tools: its own workflow, and the hook of pre-commit."""

import shlex
from pathlib import Path

import yaml

from samebits.lint.command import main
from tests.project.test_commands import sessions

ROOT = Path(__file__).parents[2]
CI = ROOT / ".github" / "workflows" / "ci.yml"


def test_the_workflow_runs_sessions_that_exist():
    jobs = yaml.safe_load(CI.read_text("utf-8"))["jobs"].values()
    lines = [step["run"].split() for job in jobs for step in job["steps"] if "run" in step]
    assert {line[line.index("-s") + 1] for line in lines} == {"lint", "tests", "matrix"}
    assert {"lint", "tests", "matrix"} <= sessions()


def test_the_hook_reads_the_files_of_a_commit(tmp_path, capsys):
    """pre-commit appends the names of the files to ``entry``."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert shlex.split(hook["entry"]) == ["samebits", "lint"]
    clean, faulty = tmp_path / "clean.py", tmp_path / "faulty.py"
    clean.write_text("import math\n")
    faulty.write_text("from transformers.utils import LossKwargs\n")
    assert main([str(clean)]) == 0
    capsys.readouterr()
    assert main([str(clean), str(faulty)]) == 1
    assert "faulty.py:1:" in capsys.readouterr().out

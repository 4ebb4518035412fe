"""The examples for schedulers start the shards that they should; uvx is a program that prints."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from samebits import cli

pytestmark = pytest.mark.processes
FOLDER = Path(__file__).parents[2] / "examples" / "many-machines"


def started(tmp_path, command, **variables):
    """Return the options that a command of a shell gives samebits."""
    program = tmp_path / "uvx"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
    printed = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    name, verb, *words = printed.stdout.splitlines()
    assert name == "samebits"
    return verb, cli.parsers()[verb].parse_args(words)


def test_slurm(tmp_path):
    shards = []
    for number in range(1, 9):
        variables = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "8"}
        verb, options = started(tmp_path, ["bash", str(FOLDER / "slurm.sh")], **variables)
        assert verb == "matrix"
        shards.append(options.shard)
    assert shards == [(number, 8) for number in range(1, 9)]
    assert "--array=1-8 " in (FOLDER / "slurm.sh").read_text()
    verb, merge = started(tmp_path, ["bash", str(FOLDER / "slurm-merge.sh")])
    assert (verb, merge.store) == ("merge", options.store)


def test_kubernetes(tmp_path):
    spec = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text("utf-8"))["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    shards = [
        started(tmp_path, container["command"], JOB_COMPLETION_INDEX=str(index))[1].shard
        for index in range(spec["completions"])
    ]
    assert shards == [(number, 8) for number in range(1, 9)]


def test_github(tmp_path):
    jobs = yaml.safe_load((FOLDER / "github.yml").read_text("utf-8"))["jobs"]
    indices = jobs["shard"]["strategy"]["matrix"]["index"]
    (command,) = [step["run"] for step in jobs["shard"]["steps"] if "run" in step]
    shards = []
    for index in indices:
        text = re.sub(r"\$\{\{ matrix.index \}\}", str(index), command)
        shards.append(started(tmp_path, ["sh", "-c", text])[1].shard)
    assert shards == [(number, len(indices)) for number in indices]
    assert jobs["report"]["needs"] == "shard"
    assert jobs["report"]["if"] == "always()"
    download, merge = [step["run"] for step in jobs["report"]["steps"] if "run" in step]
    assert '--pattern "shard-*" --dir shards' in download
    assert started(tmp_path, ["sh", "-c", merge])[0] == "merge"

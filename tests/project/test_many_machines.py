"""The examples for schedulers start the shards that they should; uvx is a program that prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from samebits import cli
from tests.project.test_own_ci import CI

pytestmark = pytest.mark.processes
FOLDER = Path(__file__).parents[2] / "examples" / "many-machines"

OF_ALL = {"SLURM_CPUS_PER_TASK": "8"}
"""What Slurm gives each job that asks for CPUs per task."""


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
        variables = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "8", **OF_ALL}
        verb, options = started(tmp_path, ["bash", str(FOLDER / "slurm.sh")], **variables)
        assert verb == "matrix"
        shards.append(options.shard)
    assert shards == [(number, 8) for number in range(1, 9)]
    assert "--array=1-8 " in (FOLDER / "slurm.sh").read_text()
    verb, merge = started(tmp_path, ["bash", str(FOLDER / "slurm-merge.sh")], **OF_ALL)
    assert (verb, merge.store, merge.jobs) == ("merge", options.store, options.jobs)


def test_kubernetes(tmp_path):
    spec = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text("utf-8"))["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    shards = [
        started(tmp_path, container["command"], JOB_COMPLETION_INDEX=str(index))[1].shard
        for index in range(spec["completions"])
    ]
    assert shards == [(number, 8) for number in range(1, 9)]


def test_kubernetes_merges_what_the_shards_left(tmp_path):
    (shard,), (merge,) = (containers(name) for name in ("kubernetes.yaml", "kubernetes-merge.yaml"))
    verb, options = started(tmp_path, merge["command"])
    assert verb == "merge"
    left = started(tmp_path, shard["command"], JOB_COMPLETION_INDEX="0")[1]
    assert options.store == left.store
    assert merge["envFrom"] == shard["envFrom"]


def containers(name):
    manifest = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return manifest["spec"]["template"]["spec"]["containers"]


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


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kubernetes-merge.yaml"])
def test_a_manifest_is_valid_since_jobs_have_retries_for_each_index(name):
    """backoffLimitPerIndex is stable since 1.33."""
    kubernetes = pytest.importorskip("kubernetes_validate")
    manifest = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    for version in ("1.33", "1.35"):
        assert kubernetes.validate(manifest, version, strict=True)
    manifest["spec"]["completionsMode"] = "Indexed"
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(manifest, "1.33", strict=True)


@pytest.mark.parametrize("path", [FOLDER / "github.yml", CI], ids=lambda path: path.name)
def test_the_workflow_has_the_form_that_github_documents(path):
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += ["vendor.github-workflows", str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr

"""The examples for Slurm, submitted to a real Slurm of one node; uvx is a program that notes its arguments."""

import os

import pytest

from samebits import cli
from tests.project.test_many_machines import FOLDER
from tests.support import slurm

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "it is installed"),
]

UVX = """#!/bin/sh
printf '%s\\n' "$@" > "uvx.$SLURM_JOB_ID"
case "$*" in *" 3/8 "*) exit 1;; esac
"""


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """Submit the array as it is written, then the merge; return Slurm and the folder of the jobs."""
    folder = tmp_path_factory.mktemp("jobs")
    program = folder / "bin" / "uvx"
    program.parent.mkdir()
    program.write_text(UVX)
    program.chmod(0o755)
    with slurm.Slurm(tmp_path_factory.mktemp("slurm") / "run") as running:
        path = f"{program.parent}{os.pathsep}{running.environ['PATH']}"
        array = running.submit(folder, str(FOLDER / "slurm.sh"), PATH=path)
        after = f"--dependency=afterany:{array}"
        merge = running.submit(folder, after, str(FOLDER / "slurm-merge.sh"), PATH=path)
        running.wait(array)
        running.wait(merge)
        states = running.ask("scontrol", "--oneliner", "show", "job", array)
    return folder, merge, states


def options(path):
    name, verb, *words = path.read_text("utf-8").splitlines()
    assert name == "samebits"
    return verb, cli.parsers()[verb].parse_args(words)


def test_each_task_of_the_array_runs_its_shard(submitted):
    folder, merge, _ = submitted
    asked = [options(path) for path in folder.glob("uvx.*") if path.suffix != f".{merge}"]
    assert {verb for verb, _ in asked} == {"matrix"}
    assert sorted(o.shard for _, o in asked) == [(number, 8) for number in range(1, 9)]
    assert {o.jobs for _, o in asked} == {8}


def test_the_merge_runs_although_a_task_failed(submitted):
    folder, merge, states = submitted
    assert states.count("JobState=FAILED") == 1
    assert states.count("JobState=COMPLETED") == 7
    verb, merged = options(folder / f"uvx.{merge}")
    assert (verb, merged.store) == ("merge", "/shared/samebits")

"""The examples for Slurm over real releases: their report has the bytes of a plain run."""

import os
import sys

import pytest

from tests.project.test_many_machines import FOLDER
from tests.real.conftest import ROOT, share_stacks
from tests.real.test_real_shards import MATRIX, report_of, run
from tests.support import slurm

pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "it is installed")

UVX = f"""#!/bin/sh
shift
PYTHONPATH={ROOT} exec {sys.executable} -m samebits "$@" --quick
"""


def test_an_array_and_its_merge_have_the_report_of_a_plain_run(tmp_path):
    """Only the store's folder is another one; Slurm has three tasks on its command line in place of 8."""
    alone, folder = tmp_path / "alone", tmp_path / "jobs"
    run(alone, "matrix", "--no-repro", "--quick")
    folder.mkdir()
    (folder / "matrix.yaml").write_text(MATRIX)
    share_stacks(folder / ".samebits")
    program = folder / "bin" / "uvx"
    program.parent.mkdir()
    program.write_text(UVX)
    program.chmod(0o755)
    for name in ("slurm.sh", "slurm-merge.sh"):
        text = (FOLDER / name).read_text("utf-8")
        assert "--store /shared/samebits" in text
        moved = text.replace("/shared/samebits", str(tmp_path / "store"))
        (folder / name).write_text(moved.replace(" merge ", " merge --no-repro "))
    with slurm.Slurm(tmp_path / "slurm") as running:
        path = f"{program.parent}{os.pathsep}{running.environ['PATH']}"
        array = running.submit(folder, "--array=1-3", "slurm.sh", PATH=path)
        after = f"--dependency=afterany:{array}"
        merge = running.submit(folder, after, "slurm-merge.sh", PATH=path)
        running.wait(merge, 500)
    logs = "\n".join(path.read_text() for path in sorted(folder.glob("slurm-*.out")))
    assert (folder / "reports" / "latest" / "report.json").exists(), logs
    assert report_of(folder) == report_of(alone), logs

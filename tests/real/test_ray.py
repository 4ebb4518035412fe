"""A run on a local Ray cluster of two workers, one of which is killed, has the bytes of a plain run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.real.conftest import ROOT, share_stacks
from tests.real.test_real_shards import MATRIX, report_of, run

pytest.importorskip("ray")


def descendants(pid):
    """Return the command line of every process below a process, by id."""
    parents, commands = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                status = (entry / "stat").read_text()
                parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
                commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    below, grows = {pid}, True
    while grows:
        more = {child for child, parent in parents.items() if parent in below} - below
        below |= more
        grows = bool(more)
    return {each: commands.get(each, "") for each in below - {pid}}


def test_a_worker_is_killed_and_the_report_is_that_of_a_plain_run(tmp_path):
    alone, folder = tmp_path / "alone", tmp_path / "ray"
    code = run(alone, "matrix", "--no-repro")
    folder.mkdir()
    (folder / "matrix.yaml").write_text(MATRIX)
    share_stacks(folder / ".samebits")
    command = [sys.executable, "-m", "samebits", "matrix", "--no-repro", "--on", "local"]
    with (folder / "said.log").open("w") as said:
        driver = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
        )
    killed, until = 0, time.monotonic() + 240
    while not killed and driver.poll() is None and time.monotonic() < until:
        below = descendants(driver.pid)
        workers = [pid for pid, text in below.items() if text.startswith("ray::host")]
        hosts = [pid for pid, text in below.items() if "-m samebits matrix" in text]
        if workers and hosts and list((folder / ".samebits").glob("captures/*/*/*/*")):
            killed = workers[0]
            os.kill(killed, signal.SIGKILL)
        time.sleep(0.02)
    text = (folder / "said.log").read_text
    assert driver.wait(400) == code, text()
    assert killed, text()
    assert "2 of 2 tasks have ended" in text()
    assert "failed on the cluster" not in text()
    assert report_of(folder) == report_of(alone)

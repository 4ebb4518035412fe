"""Tests that processes of a capsule's scripts end with the run."""

import asyncio
import os
import time

import pytest

from samebits.capsules import running
from samebits.capsules.running import Commands, Place
from samebits.pipeline import capsules
from tests.support.faulty_bench import all_end, processes_with
from tests.support.scheduler_bench import Bench

pytestmark = pytest.mark.processes

# what uv does: it starts another program and waits for it; neither minds a plain request
PROGRAM = """#!/bin/sh
trap "" TERM INT HUP
sh -c 'trap "" TERM INT HUP; sleep 600' &
sleep 600 &
touch begun
wait
"""


@pytest.fixture
def uv(tmp_path, monkeypatch):
    path = tmp_path / "uv"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    monkeypatch.setattr(running, "find_uv_bin", lambda: str(path))
    # every process of this test is known by a variable that a script may see
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "UV_OF_THIS": str(tmp_path)}
    folder = tmp_path / "capsule"
    folder.mkdir()
    return folder, environ


def left(tmp_path):
    return processes_with("UV_OF_THIS", tmp_path)


def gone(tmp_path):
    return all_end("UV_OF_THIS", tmp_path)


def test_a_command_that_runs_is_ended_with_all_that_it_started(uv, tmp_path):
    folder, environ = uv
    commands = Commands()

    async def both():
        task = asyncio.create_task(
            asyncio.to_thread(commands, [running.find_uv_bin()], folder, environ)
        )
        while not (folder / "begun").exists():
            await asyncio.sleep(0.01)
        assert len(left(tmp_path)) >= 3
        commands.end()
        return await task

    started = time.monotonic()
    assert asyncio.run(both()).code == -9
    assert gone(tmp_path), left(tmp_path)
    assert time.monotonic() - started < 30
    ran = commands([running.find_uv_bin()], folder, environ)
    assert ran == (-1, "the run was ended")


def test_a_script_that_takes_too_long_is_ended_with_all_that_it_started(uv, tmp_path, monkeypatch):
    folder, environ = uv
    monkeypatch.setattr(running, "_TIMEOUT", 0.5)
    ran = Commands()([running.find_uv_bin()], folder, environ)
    assert ran.output.startswith("it did not end in")
    assert gone(tmp_path), left(tmp_path)


def test_a_run_that_is_interrupted_while_scripts_run_waits_for_none(uv, tmp_path, monkeypatch):
    """Covers the scheduler from the cancelled task to the thread that waits for uv."""
    folder, environ = uv
    places = []

    class Kept(Place):
        def __init__(self, environ):
            super().__init__(environ)
            places.append(self._root)

    class Made:
        cell = "cell"

    monkeypatch.setattr(capsules, "Place", Kept)
    monkeypatch.setattr(capsules, "Maker", lambda *arguments: arguments[4])
    bench = Bench(tmp_path)
    bench.environ = environ
    lab = capsules.Capsules(bench.make())

    async def capsule(place, result, runs, keep):
        return await asyncio.to_thread(place.run, folder, ("a.py",), needs_hub=False)

    lab._capsule = capsule

    async def interrupted():
        task = asyncio.create_task(lab._new_capsules([Made()], {}, {"cell": None}))
        while not any(root.joinpath("capsule", "begun").exists() for root in places):
            await asyncio.sleep(0.01)
        assert len(left(tmp_path)) >= 3
        task.cancel()  # what asyncio.run makes of a Ctrl-C
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    asyncio.run(interrupted())  # which waits for threads
    assert time.monotonic() - started < 30
    assert gone(tmp_path), left(tmp_path)
    assert not places[0].exists()

"""Tests that no record made from a log or message of a process contains this machine's folders."""

import asyncio
from pathlib import Path

import pytest

from samebits.base.errors import StackError
from samebits.jobs import trace as tracing
from samebits.jobs.cells import failed
from samebits.ladder.asking import Ask
from samebits.questions.crossings.records import LOAD, SAVE
from samebits.stacks.process import Ended, StackProcess, tail
from samebits.stacks.slots import Slots
from tests.support.builders import cell_id
from tests.support.crossings_bench import run as cross
from tests.support.fakes import Crossed, FakeProcess, ended
from tests.support.ladder_bench import Process, climb
from tests.support.scheduler_bench import STACKS, Bench, probe, recipe

PLANTED = (
    "Traceback (most recent call last):\n"
    '  File "/home/x/secret/project/code.py", line 3, in <module>\n'
    "OSError: [Errno 2] No such file: '/tmp/secret dir/w.bin' (in /opt/secret/lib.so)"
)


def is_clean(text):
    return "secret" not in text and "/home/" not in text and "/tmp/" not in text


def texts(runs):
    """Return the JSON of all captures as one text."""
    return "".join(run.model_dump_json() for both in runs.values() for run in both)


def test_what_is_planted_is_found():
    assert not is_clean(PLANTED)
    assert is_clean("Traceback: …/code.py")


def test_the_tail_of_a_log(tmp_path):
    (tmp_path / "log").write_text(PLANTED)
    assert is_clean(tail(tmp_path / "log"))
    assert "…/code.py" in tail(tmp_path / "log")


def test_a_stack_that_could_not_be_built(tmp_path):
    bench = Bench(tmp_path)

    def build(spec):
        if spec.id == "5.0":
            raise StackError(PLANTED)
        return Bench.build(bench, spec)

    bench.build = build
    runs = bench.run()
    assert [run.status for run in runs[bench.plan.cells[-1]]] == ["failed"] * 2
    assert is_clean(texts(runs))
    assert is_clean(str(bench.lab.stacks.failures["5.0"]))
    assert is_clean("".join(bench.progress.lines))


class Dying(FakeProcess):
    """A stack process whose log contains folders."""

    def log_tail(self):
        return PLANTED


@pytest.mark.parametrize("ready", [True, False], ids=["dies", "never comes up"])
def test_a_stack_s_process_that_ends(tmp_path, ready):
    bench = Bench(tmp_path)

    def dies(job):
        return OSError("dead")

    async def start(python, environment, log):
        if python != "python5.0":
            return await Bench.start(bench, python, environment, log)
        return Dying(dies) if ready else Dying(ready=None)

    bench.start = start
    runs = bench.run()
    failure = runs[bench.plan.cells[-1]][0].failure
    assert "…/code.py" in failure.message
    assert is_clean(texts(runs))


def test_an_interpreter_that_cannot_be_started(tmp_path):
    async def starter(python, environment, log):
        raise FileNotFoundError(2, "No such file or directory", "/home/x/secret/bin/python")

    async def main():
        process = StackProcess("5.x", "python", {}, tmp_path / "log", Slots(1), starter)
        return await process.run({"kind": "cell", "timeout": 1})

    found = asyncio.run(main())
    assert "…/python" in found.reason
    assert is_clean(found.reason)


def test_an_exception_that_ended_a_job(tmp_path):
    async def starter(python, environment, log):
        return FakeProcess(lambda job: ended(job, exit=1, said=PLANTED))

    async def main():
        process = StackProcess("5.x", "python", {}, tmp_path / "log", Slots(1), starter)
        found = await process.run({"kind": "cell", "timeout": 1})
        await process.close()
        return found

    found = asyncio.run(main())
    assert "exited with 1" in found.reason
    assert is_clean(found.reason)


def leaves_a_log(job):
    """Write a log and no result."""
    Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
    Path(job["log"]).write_text(PLANTED)
    return ended(job, exit=1)


def test_a_cell_that_left_a_log_alone(tmp_path):
    def does(job):
        return probe(job) if job["kind"] == "build" else leaves_a_log(job)

    runs = Bench(tmp_path, does=dict.fromkeys(STACKS, does)).run()
    assert all("…/code.py" in both[0].failure.traceback for both in runs.values())
    assert is_clean(texts(runs))


def test_a_checkpoint_that_could_not_be_made(tmp_path):
    runs = Bench(tmp_path, recipe(), does=dict.fromkeys(STACKS, leaves_a_log)).run()
    assert all("…/code.py" in both[0].failure.message for both in runs.values())
    assert is_clean(texts(runs))


def test_a_cell_that_could_not_be_started():
    one, other = failed(cell_id(), "build", PLANTED)
    assert is_clean(one.model_dump_json() + other.model_dump_json())


def test_a_ladder_that_left_a_log_alone(tmp_path):
    class Lost(Process):
        async def run(self, job):
            leaves_a_log(job | {"id": "x"})
            return Ended(exit=1)

    found = climb(tmp_path, Lost(), ask=Ask())
    assert "…/code.py" in found.failure.traceback
    assert is_clean(found.model_dump_json())


@pytest.mark.parametrize("kind", [SAVE.name, LOAD.name])
def test_a_crossing_that_left_a_log_alone(tmp_path, kind):
    crossed = Crossed()
    report = cross(tmp_path, lambda job: leaves_a_log(job) if job["kind"] == kind else crossed(job))
    assert {c.outcome for c in report.crossings} == {
        "save failed" if kind == SAVE.name else "not tried"
    }
    assert is_clean(report.model_dump_json())


def test_traces_that_could_not_be_joined(monkeypatch):
    def breaks(*told):
        raise OSError(PLANTED)

    monkeypatch.setattr(tracing, "_first_located", breaks)
    said = asyncio.run(tracing.cause(None, None, None))
    assert "could not be joined" in said
    assert is_clean(said)

"""The life cycle of jobs with a cached result, over processes that write what a test says."""

import asyncio
import json
from pathlib import Path

import pytest

from samebits.base.filestate import Dependencies
from samebits.jobs.cache import CachedJob, JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.records.capture import Failure
from samebits.records.ladder import LadderFile
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import cell_id

CELL = cell_id("4.48")
CHECKPOINT = Checkpoint(model="llama", source="/c", shown_source="c", digest="d" * 64)
WHOLE = sealed(LadderFile(cell=CELL).model_dump_json())
LACK = Failure(phase="load", type="MemoryError", message="no", traceback="")
TRANSIENT = sealed(LadderFile(cell=CELL, failure=LACK).model_dump_json())


class Bench:
    """A cache in a folder, and the jobs that ran."""

    def __init__(self, root):
        self.root = root
        self.dependencies = Dependencies()
        self.jobs = []

    def result(self, content, *, log="the log", fresh=False, **options):
        """Return the result of a job that writes ``content``; None writes nothing."""
        cache = JobCache(self.root, Store(self.root), fresh=fresh, dependencies=self.dependencies)
        self.path = cache.path("ladders", "llama", facts={"a": 1})
        bench = self

        class Process:
            async def run(self, job):
                bench.jobs.append(job)
                path = Path(job["result"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".log").write_text(log)
                if content is not None:
                    path.write_text(content)
                return Ended(exit=1, said="ValueError: no")

        job = CachedJob(
            self.path,
            LadderFile,
            CHECKPOINT,
            lambda path: {"result": str(path), "log": str(path.with_suffix(".log"))},
            unrepeatable="it left nothing",
            row=str(CELL),
            **options,
        )
        return asyncio.run(cache.result(job, Process()))

    @property
    def files(self):
        return sorted(path.name for path in self.path.parent.iterdir())


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_whole_result_and_log_get_their_final_names(bench):
    assert bench.result(WHOLE) == LadderFile(cell=CELL)
    assert bench.files == [f"{bench.path.stem}.json", f"{bench.path.stem}.log"]
    assert bench.dependencies.unrepeatable == {}
    assert bench.dependencies.files[str(bench.path)] is not None


def test_cached_result_runs_no_job(bench):
    assert bench.result(WHOLE) == bench.result(None)
    assert len(bench.jobs) == 1
    bench.result(WHOLE, fresh=True)
    assert len(bench.jobs) == 2


@pytest.mark.parametrize("content", [None, WHOLE[:-9], json.dumps({"format": "other"})])
def test_torn_result_is_removed_and_noted(bench, content):
    assert isinstance(bench.result(content), Failure)
    assert bench.files == [f"{bench.path.stem}.log"]
    assert bench.dependencies.unrepeatable == {"it left nothing": str(CELL)}


def test_torn_result_replaces_no_whole_one(bench):
    bench.result(WHOLE)
    assert isinstance(bench.result(WHOLE[:-9], fresh=True), Failure)
    assert bench.path.read_text() == WHOLE
    assert bench.dependencies.unrepeatable


def test_result_that_the_machine_may_have_caused_is_noted_and_runs_again(bench):
    assert bench.result(TRANSIENT).failure == LACK
    assert bench.dependencies.unrepeatable == {"it left nothing": str(CELL)}
    assert bench.result(WHOLE) == LadderFile(cell=CELL)
    assert len(bench.jobs) == 2


def test_lost_job_says_how_it_ended(bench):
    failure = bench.result(None)
    assert failure.message == "exited with 1: ValueError: no"
    assert failure.traceback == "the log"
    assert not bench.path.exists()


def test_result_of_another_cell_is_no_result(bench):
    assert isinstance(bench.result(WHOLE, belongs=lambda result: result.cell != CELL), Failure)
    assert not bench.path.exists()

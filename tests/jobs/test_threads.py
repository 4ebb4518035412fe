"""The threads of a model's jobs: one number for every kind of job, which names their results."""

import asyncio
from functools import partial

import pytest

from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import LARGE, SEVERAL, ReadyCell, job_of, threads_of
from samebits.jobs.lab import Lab
from samebits.jobs.records import DonorTask, Rungs, Tracing
from samebits.questions.crossings.crosser import Crosser
from samebits.records import kinds
from samebits.records.ids import Variant
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from tests.support.builders import built_stack, cell_id, model_spec

CPU, CUDA = (
    Variant(dtype="float32", attention="default", device=device) for device in ("cpu", "cuda")
)
CELL, STACK = cell_id("4.48"), built_stack("4.48")


def spec(threads):
    return model_spec() if threads is None else model_spec(threads=threads)


def checkpoint(n_bytes):
    return Checkpoint(
        model="llama", source="/llama", shown_source="path llama", digest="d", n_bytes=n_bytes
    )


@pytest.mark.parametrize(
    ("threads", "n_bytes", "variant", "expected"),
    [
        (None, 5_000, CPU, 1),
        (None, LARGE - 1, CPU, 1),
        (None, LARGE, CPU, SEVERAL),
        (None, LARGE, CUDA, 1),
        (None, None, CPU, 1),  # on the hub
        (1, LARGE, CPU, 1),
        (7, 5_000, CPU, 7),
        (7, None, CUDA, 7),
    ],
)
def test_the_number_follows_from_the_model_alone(monkeypatch, threads, n_bytes, variant, expected):
    for cores in (1, 64):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=cores: range(n))
        monkeypatch.setattr("os.cpu_count", lambda n=cores: n)
        assert threads_of(spec(threads), checkpoint(n_bytes), variant) == expected


def test_the_number_of_a_part_of_a_model_is_that_of_the_whole():
    part = checkpoint(LARGE).model_copy(update={"source": "/part", "digest": None})
    assert threads_of(model_spec(), part, CPU) == SEVERAL


def asked(kind, task, cache, model):
    """Return where the answer of a cell is kept, and the job that it is asked with."""
    jobs = []

    class Process:
        async def run(self, job):
            jobs.append(job)
            return Ended(exit=0)

    lab, ready = Lab(cache), ReadyCell(CELL, model, checkpoint(1), STACK, Process())
    asyncio.run(lab.ask(kind, task, ready))
    return lab.path(kind, task, ready), jobs[0]["threads"]


LADDER = partial(asked, kinds.LADDER, Rungs(probe_files=()))
TRACE = partial(
    asked,
    kinds.TRACE,
    Tracing(prompt="short", what="forward", forced={}, steps=0, new_tokens=1, look=(), rung="own"),
)
GRAFT = partial(
    asked,
    kinds.DONOR,
    DonorTask(prompt="short", what="forward", forced={}, expected=(), weights=()),
)


def crossing(cache, model):
    party = ReadyCell(CELL, model, checkpoint(1), STACK, None)
    folder = Crosser(Lab(cache))._saved_folder(party)
    return folder, job_of(party, folder)["threads"]


@pytest.mark.parametrize("kind", [LADDER, TRACE, GRAFT, crossing])
def test_every_job_has_the_number_and_its_result_is_named_after_it(tmp_path, kind):
    cache = JobCache(tmp_path, Store(tmp_path), "p", "m")
    usual, one, three = (kind(cache, spec(n)) for n in (None, 1, 3))
    assert [threads for _, threads in (usual, one, three)] == [1, 1, 3]
    assert usual[0] == one[0] != three[0]

"""The threads of a model's jobs: one number for every kind of job, which names their results."""

import pytest

from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import LARGE, SEVERAL, threads_of
from samebits.jobs.crossings import CrossedModel, Crosser, CrossingStack, _job_fields
from samebits.jobs.graft import Grafter
from samebits.jobs.ladder import Climber
from samebits.jobs.records import DonorTask
from samebits.jobs.trace import TracedCell, TracedModel, Tracer, _tracing
from samebits.ladder.asking import Ask
from samebits.records.ids import Variant
from samebits.storage.store import Store
from samebits.trace.question import TracePhase
from tests.support.builders import built_stack, cell_id, model_spec

CPU, CUDA = (
    Variant(dtype="float32", attention="default", device=device) for device in ("cpu", "cuda")
)
CELL, STACK = cell_id("4.48"), built_stack("4.48")


def spec(threads):
    return model_spec() if threads is None else model_spec(threads=threads)


def checkpoint(n_bytes):
    return Checkpoint(
        model="llama", source="/llama", said="path llama", digest="d", n_bytes=n_bytes
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


def ladder(cache, model):
    climber, ask, at = Climber(cache), Ask(), checkpoint(1)
    path = climber._path(CELL, model, at, STACK, ask)
    return path, climber._job(CELL, model, at, path, ask)


def trace(cache, model):
    tracer, subject = Tracer(cache), TracedModel(model, checkpoint(1))
    traced, question = TracedCell(CELL, STACK, None), TracePhase("short", "forward", {})
    path = tracer._path(subject, traced, question, "own", ())
    return path, tracer._job(subject, traced, _tracing(model, question, "own", (), path), path)


def graft(cache, model):
    grafter, subject = Grafter(cache), TracedModel(model, checkpoint(1))
    traced = TracedCell(CELL, STACK, None)
    path = grafter._path(subject, traced, {})
    task = {"prompt": "short", "what": "forward", "forced": {}, "expected": (), "weights": ()}
    return path, grafter._job(subject, traced, DonorTask(**task, result=str(path)), path)


def crossing(cache, model):
    subject = CrossedModel(model, CPU, checkpoint(1))
    crosser, party = Crosser(cache), CrossingStack(STACK, None)
    fields = _job_fields(subject, party.stack)
    return crosser._saved_folder(subject, STACK), type("Job", (), fields)


@pytest.mark.parametrize("kind", [ladder, trace, graft, crossing])
def test_every_job_has_the_number_and_its_result_is_named_after_it(tmp_path, kind):
    cache = JobCache(tmp_path, Store(tmp_path), "p", "m")
    usual, one, three = (kind(cache, spec(n)) for n in (None, 1, 3))
    assert [job.threads for _, job in (usual, one, three)] == [1, 1, 3]
    assert usual[0] == one[0] != three[0]

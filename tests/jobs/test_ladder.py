"""Ladder jobs: when results are cached, and how failures are recorded."""

import numpy as np
import pytest

from samebits.jobs.checkpoints import Checkpoint
from samebits.ladder.asking import Ask
from samebits.matrix.spec import Prompt
from samebits.records.capture import Failure
from samebits.records.ladder import Aligned, LadderFile, Rung
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from tests.support.builders import Memory, built_stack, model_spec
from tests.support.jobs import CHECKPOINT
from tests.support.ladder_bench import ASK, CELL, Process, climb

HUB = Checkpoint(model="llama", source="org/llama", shown_source="hub org/llama")


def runs_again(root, **changed):
    process = Process()
    climb(root, process, **changed)
    return bool(process.jobs)


def test_the_job_says_what_the_probe_expects(tmp_path):
    process = Process()
    result = climb(tmp_path, process)
    (job,) = process.jobs
    assert job["kind"] == "ladder"
    added = {"result": job["task"]["result"], "probe_files": []}
    assert job["task"] == added | ASK.model_dump(mode="json")
    assert job["model"]["source"] == CHECKPOINT.source
    assert result.rungs == {"float64": Rung()}


def test_the_same_again_runs_nothing(tmp_path):
    assert runs_again(tmp_path)
    assert not runs_again(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"probes": "other"},
        {"machine": "other"},
        {"fresh": True},
        {"ask": Ask()},
        {"ask": ASK.model_copy(update={"tables": True})},
        {"ask": ASK.model_copy(update={"again": ("forward short",)})},
        {"stack": built_stack("4.48", lock="other")},
        {"model": model_spec(prompts={"long": Prompt(length=40)})},
    ],
    ids=str,
)
def test_all_that_the_bits_follow_from_runs_it_again(tmp_path, changed):
    climb(tmp_path, Process())
    assert runs_again(tmp_path, **changed)


def test_a_checkpoint_that_is_not_pinned_always_runs(tmp_path):
    climb(tmp_path, Process(), checkpoint=HUB)
    assert runs_again(tmp_path, checkpoint=HUB)


def test_a_process_that_dies_is_a_failure_with_its_reason(tmp_path):
    result = climb(tmp_path, Process(ended=Ended(signal=9)))
    assert result.failure is not None
    assert "killed by signal 9" in result.failure.message
    assert runs_again(tmp_path)


def test_want_of_memory_runs_again_and_an_exception_of_the_model_does_not(tmp_path):
    for kind, again in (("MemoryError", True), ("ValueError", False)):
        failure = Failure(phase="load", type=kind, message="no", traceback="")
        root = tmp_path / kind
        climb(root, Process(LadderFile(cell=CELL, failure=failure)))
        assert runs_again(root) is again


def test_what_had_no_room_is_asked_again(tmp_path):
    failure = Failure(phase="memory", type="not asked", message="no room", traceback="")
    climb(tmp_path, Process(LadderFile(cell=CELL, failure=failure)))
    assert runs_again(tmp_path)


@pytest.mark.parametrize("where", ["rung", "aligned"])
def test_a_rung_whose_values_are_damaged_is_climbed_again(tmp_path, where):
    """Size and time of a file do not show damage, and a damaged rung would change a verdict."""
    memory = Memory()
    ref = memory.put(np.arange(4.0)).model_copy(update={"stored": True})
    rungs = {"float64": Rung(decode={"short": ref} if where == "rung" else {})}
    aligned = Aligned(what="forward short", off=1, refs={"short": ref})
    file = LadderFile(cell=CELL, rungs=rungs, aligned=(aligned,) if where == "aligned" else ())
    path = Store(tmp_path).tensor_path(ref)
    path.parent.mkdir(parents=True)
    content = memory.arrays[ref.hash].tobytes()
    path.write_bytes(content)
    climb(tmp_path, Process(file))
    assert not runs_again(tmp_path)
    path.write_bytes(content[:-1] + b"\x01")
    assert runs_again(tmp_path)

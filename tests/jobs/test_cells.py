"""Runner of cells: when captures are cached, and how failed and unfinished runs are recorded."""

import asyncio
import json
from pathlib import Path

import pytest

from samebits.base.errors import CaptureError
from samebits.compare.pair import reason
from samebits.jobs.cache import JobCache
from samebits.jobs.cells import RUNS, VALUES_LIMIT, CellRunner, failed
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import LARGE
from samebits.matrix.spec import Prompt
from samebits.pipeline.answers import options_of
from samebits.records.capture import NO_DEVICE, Failure, Signals, Skip, Unfinished
from samebits.records.ids import CellId
from samebits.records.inputs import Inputs
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from tests.support.builders import Memory, built_stack, capture, cell_id, model_spec, sound_signals
from tests.support.fakes import leave
from tests.support.jobs import CHECKPOINT, job_cache, ready_cell

CELL = cell_id("4.48")
STACK = built_stack("4.48")
HUB = Checkpoint(model="llama", source="org/llama", shown_source="hub org/llama")
FINE, LOST, CRASHED = Ended(exit=0), Ended(signal=9), Ended(signal=11)
STALLED = Ended(
    signal=9,
    timed_out=True,
    phase="greedy short",
    step="2 of 3",
    stalled="no progress for 120 s",
    meanwhile="it used no CPU: it waits for something",
)


class Process:
    """A stack process whose children leave ``status`` captures, or end without one."""

    def __init__(
        self, status="complete", ends=FINE, log="", only=RUNS, failure=None, n_slots=1, **changed
    ):
        self.status, self.ends, self.log, self.only = status, ends, log, only
        self.changed = changed if failure is None else changed | {"failure": failure}
        self.n_slots = n_slots
        self.jobs = []

    def n_beside(self, threads):
        return self.n_slots

    async def run(self, job, started):
        started()
        self.jobs.append(job)
        await asyncio.sleep(0)
        if self.log:
            Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
            Path(job["log"]).write_text(self.log, "utf-8")
        if self.status is not None and job["run"] in self.only:
            written = capture("4.48", run=job["run"], status=self.status)
            own = {"cell": CellId.model_validate(job["cell"]), "threads": job["threads"]}
            written = written.model_copy(update=own | self.changed)
            leave(job["capture"], written)
        return self.ends


class Bench:
    """Runs one cell; arguments that are not passed have default values."""

    def __init__(self, root):
        self.root = root
        self.begun = 0

    def observe(self, process, *, wanted=(), **changed):
        runner = CellRunner(job_cache(self.root, **changed), options_of)
        ready = ready_cell(changed.pop("cell", CELL), process, **({"stack": STACK} | changed))
        return asyncio.run(runner.observe(ready, wanted, self.begin))

    def begin(self):
        self.begun += 1

    def runs_again(self, process=None, **changed):
        """Return True if observing runs jobs, False if none."""
        process = process or Process()
        self.observe(process, **changed)
        assert len(process.jobs) in (0, 2, 3)  # the third is a full run b
        return bool(process.jobs)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_both_runs_are_made_and_read(bench):
    process = Process()
    captures = bench.observe(process)
    assert [(c.cell, c.run, c.status) for c in captures] == [
        (CELL, "a", "complete"),
        (CELL, "b", "complete"),
    ]
    assert bench.begun == 2


def test_a_job_says_all_that_a_probe_needs_and_is_json(bench):
    process = Process()
    prompts = {"short": Prompt(text="a", length=3), "pair": Prompt(batch=(Prompt(length=2),))}
    model = model_spec(
        hub="org/llama",
        revision="main",
        trust_remote_code=True,
        prompts=prompts,
        timeout=7.0,
        imports=("m",),
        model_class="m:M",
        load={"variant": "fp16"},
    )
    inputs = Inputs(record="/work/inputs.json", root="/work", digest="c" * 64)
    checkpoint = HUB.model_copy(update={"revision": "main", "inputs": inputs})
    bench.observe(process, model=model, checkpoint=checkpoint, wanted=["ab" * 32])
    first, second = process.jobs
    assert json.loads(json.dumps(first)) == first
    assert first["kind"] == "cell"
    assert first["cell"] == CELL.model_dump(mode="json")
    assert (first["run"], second["run"]) == RUNS
    assert (first["timeout"], first["budget"], first["threads"]) == (7.0, 600.0, 1)
    assert first["model"] == {
        "source": "org/llama",
        "revision": "main",
        "trust_remote_code": True,
        "imports": ["m"],
        "model_class": "m:M",
        "load": {"variant": "fp16"},
        "logits": None,
        "greedy": 3,
        "questions": {
            name: {"large": False} | ({"samples": 0} if name == "relations" else {})
            for name in (
                "texts",
                "processors",
                "pipelines",
                "arguments",
                "classes",
                "initial",
                "exports",
                "edits",
                "relations",
                "usage",
            )
        },
        "probes": [],
        "reloads": True,
        "large": False,
        "prompts": {"short": {"text": "a", "length": 3}, "pair": {"batch": [{"length": 2}]}},
        "inputs": inputs.model_dump(mode="json"),
    }
    assert first["store"] == {
        "root": str(bench.root),
        "limit": VALUES_LIMIT,
        "wanted": ["ab" * 32],
    }
    assert (first["short"], second["short"]) == (False, True)
    assert second["store"] == {"root": str(bench.root), "limit": 0, "wanted": []}
    assert len({job[key] for job in process.jobs for key in ("capture", "log")}) == 4
    folder = Path(first["capture"]).parent
    assert folder.parent == bench.root / "captures" / "llama" / "float32-sdpa" / "4.48"


@pytest.mark.parametrize("status", ["complete", "absent"])
def test_captures_of_a_model_that_answered_are_used_again(bench, status):
    first = bench.observe(Process(status))
    process = Process()
    assert bench.observe(process) == first
    assert process.jobs == []
    assert bench.begun == 2


def test_fresh_uses_none(bench):
    assert bench.runs_again()
    assert bench.runs_again(fresh=True)
    assert not bench.runs_again()


@pytest.mark.parametrize(
    ("checkpoint", "again"),
    [
        (HUB, True),
        (HUB.model_copy(update={"revision": "main"}), True),
        (HUB.model_copy(update={"revision": "0" * 40}), False),
        (CHECKPOINT, False),
    ],
    ids=["hub", "branch", "commit", "digest"],
)
def test_only_a_source_that_cannot_change_is_used_again(bench, checkpoint, again):
    assert bench.runs_again(checkpoint=checkpoint)
    assert bench.runs_again(checkpoint=checkpoint) == again


def test_an_exception_of_the_model_is_an_answer_and_kept(bench):
    bench.observe(Process("failed"))
    captures = bench.observe(Process())
    assert {c.status for c in captures} == {"failed"}


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "process"},
        {"phase": "probe"},
        {"type": "MemoryError"},
        {"type": "torch.OutOfMemoryError"},
        {"type": "OSError"},
        {"type": "RuntimeError", "message": "DefaultCPUAllocator: can't allocate memory"},
    ],
    ids=str,
)
def test_what_the_machine_may_have_done_is_run_again(bench, changed):
    failure = Failure(phase="load", type="ValueError", message="no", traceback="")
    bench.observe(Process("failed", failure=failure.model_copy(update=changed)))
    captures = bench.observe(Process())
    assert {c.status for c in captures} == {"complete"}


@pytest.mark.parametrize("run", RUNS)
def test_one_run_alone_is_not_used_again(bench, run):
    first, second = bench.observe(Process(only=[run]))
    assert {first.run: first.status, second.run: second.status} == {
        run: "complete",
        ({*RUNS} - {run}).pop(): "failed",
    }
    assert bench.runs_again()


def test_a_torn_capture_is_not_used_again(bench):
    process = Process()
    bench.observe(process)
    path = Path(process.jobs[1]["capture"]).with_name("b.json")
    path.write_text(path.read_text("utf-8")[:-5], "utf-8")
    assert bench.runs_again()


def test_a_capture_of_a_known_row_that_is_not_whole_is_named_and_removed(bench):
    process = Process()
    bench.observe(process)
    folder = Path(process.jobs[0]["capture"]).parent
    paths = folder / "a.json", folder / "b.json"
    reader = CellRunner(JobCache(bench.root, Store(bench.root), "p", "m"))
    assert [run.run for run in reader.read(paths)] == ["a", "b"]
    paths[1].write_bytes(paths[1].read_bytes().replace(b"sdpa", b"sdpb", 1))
    with pytest.raises(CaptureError, match=r"b\.json is not what was written"):
        reader.read(paths)
    assert paths[0].exists()
    assert not paths[1].exists()
    assert bench.runs_again()


def test_a_second_look_runs_anew(bench):
    bench.observe(Process())
    assert bench.runs_again(wanted=["ab" * 32])
    assert not bench.runs_again()


CHANGES = {
    "stack": {"stack": built_stack("4.48", lock="other\n")},
    "content": {"checkpoint": CHECKPOINT.model_copy(update={"digest": "e" * 64})},
    "source": {"checkpoint": CHECKPOINT.model_copy(update={"source": "/elsewhere"})},
    "prompt": {"model": model_spec(prompts={"short": Prompt(length=7)})},
    "name of a prompt": {"model": model_spec(prompts={"brief": Prompt(length=6)})},
    "one more prompt": {
        "model": model_spec(prompts={"short": Prompt(length=6), "long": Prompt(length=9)})
    },
    "steps": {"model": model_spec(greedy=4)},
    "relations": {"model": model_spec(relations=False)},
    "samples": {"model": model_spec(samples=7)},
    "relations of a large model": {"model": model_spec(own=frozenset({"relations"}))},
    "budget": {"model": model_spec(budget=60.0)},
    "threads": {"model": model_spec(threads=2)},
    "threads of its size": {"checkpoint": CHECKPOINT.model_copy(update={"n_bytes": LARGE})},
    "no further loads": {"model": model_spec(reloads=False)},
    "of any size": {"model": model_spec(large=True)},
    "remote code": {"model": model_spec(trust_remote_code=True)},
    "probes": {"probes": "other"},
    "machine": {"machine": "other"},
    "dtype": {"cell": cell_id("4.48", dtype="bfloat16")},
    "attention": {"cell": cell_id("4.48", attention="eager")},
    "stack's id": {"cell": cell_id("4.49")},
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_under_other_circumstances_it_is_run_again(bench, changed):
    bench.observe(Process())
    assert bench.runs_again(**changed)
    assert not bench.runs_again(**changed)
    assert not bench.runs_again()  # and the first result is still cached


def test_what_bits_do_not_follow_from_runs_nothing_again(bench):
    bench.observe(Process())
    model = model_spec(timeout=99.0, group="Decoders", dtypes=("float32", "bfloat16"))
    changed = {"shown_source": "otherwise", "builder": "5.0", "parameters": 7, "n_bytes": LARGE - 1}
    same = CHECKPOINT.model_copy(update=changed)
    assert not bench.runs_again(model=model, checkpoint=same)


def test_a_capture_of_another_number_of_threads_is_not_taken(bench):
    first, _ = bench.observe(Process(threads=4), model=model_spec(threads=2))
    assert (first.status, first.threads) == ("failed", 2)
    assert first.failure.message == f"it wrote the capture of {CELL}, run a, 4 threads"
    first, _ = bench.observe(Process(threads=2), model=model_spec(threads=2))
    assert (first.status, first.threads) == ("complete", 2)


def test_a_run_that_left_nothing_failed_and_says_why(bench):
    log = "".join(f"line {n}\n" for n in range(40))
    first, second = bench.observe(Process(None, CRASHED, log))
    for run in (first, second):
        assert run.status == "failed"
        assert run.cell == CELL
        assert run.failure.phase == "process"
        assert run.failure.message == "killed by signal 11 (SIGSEGV)"
        assert run.failure.traceback.endswith("line 38\nline 39")
        assert "line 3\n" not in run.failure.traceback
    assert (first.run, second.run) == RUNS
    assert bench.runs_again()


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (Ended(exit=0), "is missing: the probe ended before it wrote it"),
        (Ended(exit=1), "exited with 1"),
        (Ended(signal=11, phase="load"), "killed by signal 11 (SIGSEGV), in phase load"),
        (Ended(lost="the environment's process died:\nx"), "the environment's process died"),
    ],
    ids=["silent", "exit", "signal", "lost"],
)
def test_every_way_to_leave_nothing_has_its_words(bench, ends, words):
    assert words in bench.observe(Process(None, ends))[0].failure.message


def test_a_capture_of_an_earlier_run_does_not_stand_in_for_one_that_is_missing(bench):
    bench.observe(Process())
    captures = bench.observe(Process(None, CRASHED), fresh=True)
    assert {c.status for c in captures} == {"failed"}
    captures = bench.observe(Process(None, CRASHED))
    assert {c.status for c in captures} == {"failed"}


def test_a_capture_that_was_written_counts_however_its_process_ended(bench):
    first, _ = bench.observe(Process("complete", LOST))
    assert first.status == "complete"


# runs that did not finish


def unfinished(ends, **signals):
    """Return a process whose runs end during greedy decoding, with everything observed before."""
    memory = Memory()
    observed = {
        name: sound_signals(memory)[name] for name in ("load", "weights", "buffers", "forward")
    }
    end = Unfinished(phase="greedy short", reason="the run was still going on")
    return Process(
        "unfinished", ends, "the log", unfinished=end, signals=Signals(**observed | signals)
    )


@pytest.mark.parametrize("ends", [STALLED, LOST, Ended(lost="the environment's process died")])
def test_a_run_that_was_ended_keeps_what_it_observed(bench, ends):
    first, second = bench.observe(unfinished(ends))
    for run in (first, second):
        assert run.status == "unfinished"
        assert run.unfinished.phase == "greedy short"
        assert run.unfinished.step == ends.step
        assert run.unfinished.reason == ends.why
        assert set(run.signals.forward) == {"short"}
        assert run.failures == ()
    assert bench.runs_again()


def test_what_a_run_did_not_come_to_is_named(bench):
    first, _ = bench.observe(unfinished(STALLED))
    skips = {skip.what: skip for skip in first.skips}
    assert set(skips) == {"inv_freq", "greedy short"}
    assert {skip.why for skip in skips.values()} == {"unfinished"}
    assert skips["greedy short"].reason == (
        "the run ended before: no progress for 120 s (it used no CPU: it waits for something; if it "
        "was still working, raise timeout: in matrix.yaml) in phase greedy short"
    )
    assert reason(first, "greedy", "short").startswith("the run ended before")
    assert reason(first, "greedy", "short[1]").startswith("the run ended before")


def test_what_is_missing_for_another_reason_is_not_called_unfinished(bench):
    skips = (Skip(what="prompt short", reason="none"), Skip(what="inv_freq", reason="none"))
    process = unfinished(STALLED, forward={}, inv_freq={})
    process.changed["skips"] = skips
    first, _ = bench.observe(process)
    assert first.skips == skips


@pytest.mark.parametrize("ends", [STALLED, LOST])
def test_a_run_that_was_ended_before_it_left_anything_is_unfinished_too(bench, ends):
    first, _ = bench.observe(Process(None, ends))
    assert (first.status, first.failure) == ("unfinished", None)
    assert first.unfinished.phase == (ends.phase or "start")
    assert {skip.what for skip in first.skips} >= {"weights", "forward short", "greedy short"}
    assert bench.runs_again()


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (CRASHED, "killed by signal 11 (SIGSEGV)"),
        (Ended(exit=3, phase="forward short"), "exited with 3"),
        (FINE, "the probe ended before it wrote it"),
    ],
)
def test_a_process_that_ends_itself_fails_its_phase(bench, ends, words):
    first, _ = bench.observe(unfinished(ends))
    assert first.status == "unfinished"
    (failure,) = first.failures
    assert (failure.phase, failure.type) == (ends.phase or "greedy short", "no result")
    assert failure.message == words
    assert failure.traceback == "the log"
    assert first.raised == failure


def test_a_run_without_its_device_is_unfinished_did_not_fail_and_runs_again(bench):
    end = Unfinished(phase=NO_DEVICE, reason="this machine has no cuda device")
    first, second = bench.observe(Process("unfinished", FINE, "the log", unfinished=end))
    for run in (first, second):
        assert (run.status, run.unfinished, run.failures) == ("unfinished", end, ())
        assert {skip.what for skip in run.skips} >= {"weights", "forward short", "greedy short"}
        assert {skip.reason for skip in run.skips} == {end.reason}
    assert bench.runs_again()


def test_an_exception_behind_the_load_is_an_answer_unless_the_machine_may_have_raised_it(bench):
    failure = Failure(phase="greedy short", type="ValueError", message="no", traceback="")
    bench.observe(Process(failures=(failure,)))
    assert not bench.runs_again()
    memory = failure.model_copy(update={"type": "MemoryError"})
    bench.observe(Process(failures=(failure, memory)), fresh=True)
    assert bench.runs_again()


@pytest.mark.parametrize(
    ("skip", "n_slots", "again"),
    [
        (Skip(what="relations", reason="no room", why="cost"), 1, True),
        (Skip(what="relations", reason="no room", why="cost"), 2, False),
        (Skip(what="relations", reason="none", why="plain"), 1, False),
    ],
    ids=["fewer jobs", "as many jobs", "no cost"],
)
def test_what_was_left_out_for_want_of_memory_is_tried_where_a_job_may_take_more(
    bench, skip, n_slots, again
):
    bench.observe(Process(n_slots=2, slots=2, skips=(skip,)))
    assert bench.runs_again(Process(n_slots=n_slots)) == again


def test_a_cell_that_could_not_be_started_has_two_failed_captures():
    captures = failed(CELL, "stack", "no wheel")
    assert [(c.run, c.status) for c in captures] == [("a", "failed"), ("b", "failed")]
    assert {c.failure.phase for c in captures} == {"stack"}
    assert captures[0].failure.message == "no wheel"

"""A short run b only agrees with run a: whatever else it shows, a full run b decides as ever."""

import asyncio
from pathlib import Path

import pytest

from samebits.compare.stability import START, agrees
from samebits.diagnose.alone import alone
from samebits.jobs.cells import CellRunner
from samebits.records.capture import Failure, Skip, Unfinished
from samebits.records.ids import Verdict
from samebits.stacks.process import Ended
from tests.support.builders import (
    Memory,
    buffer,
    built_stack,
    capture,
    cell_id,
    frequencies,
    model_spec,
    nudged,
    sound,
    sound_signals,
    step_logits,
    values,
    weight,
)
from tests.support.fakes import leave
from tests.support.jobs import job_cache, ready_cell

CELL, STACK = cell_id("4.48"), built_stack("4.48")
MEMORY = Memory()
IDS = (3, 1, 4)


def decoding(ids=IDS, logits=None):
    """Return a full decoding, with the hash of its first two steps."""
    logits = step_logits(*ids) if logits is None else logits
    (facts,) = sound_signals(MEMORY)["greedy"].values()
    top2 = tuple(((id, float(row[id])), (id + 1, 0.0)) for id, row in zip(ids, logits, strict=True))
    refs = {"logits": MEMORY.put(logits), "start": MEMORY.put(logits[:START])}
    return {"short": facts.model_copy(update={"ids": tuple(ids), "top2": top2, **refs})}


def full(run="b", **changed):
    return sound(MEMORY, run=run, **({"greedy": decoding()} | changed))


def shortened(run):
    """Return what a short run observes of the same model."""
    signals = run.signals
    changed = {}
    if signals.greedy is not None:
        changed["greedy"] = {
            name: facts.model_copy(
                update={
                    "ids": facts.ids[:START],
                    "top2": facts.top2[:START],
                    "logits": facts.start,
                }
            )
            for name, facts in signals.greedy.items()
        }
    if signals.weights is not None:
        tensors = {
            name: facts.model_copy(update={"origin": "untraced", "pieces": (), "layout": ""})
            for name, facts in signals.weights.tensors.items()
        }
        changed["weights"] = signals.weights.model_copy(update={"tensors": tensors})
    return run.model_copy(update={"extent": "short", "signals": signals.model_copy(update=changed)})


def with_weight(run, array, **facts):
    weights = sound_signals(MEMORY)["weights"]
    tensors = weights.tensors | {"model.extra": weight(MEMORY, array, **facts)}
    return full(run, weights=weights.model_copy(update={"tensors": tensors}))


def with_forward(run, **changed):
    (facts,) = sound_signals(MEMORY)["forward"].values()
    return full(run, forward={"short": facts.model_copy(update=changed)})


def with_layer(run, index):
    (facts,) = sound_signals(MEMORY)["forward"].values()
    layers = list(facts.hidden_states)
    array = nudged(MEMORY.arrays[layers[index].ref.hash], 0, 2, 1)
    layers[index] = layers[index].model_copy(update={"ref": MEMORY.put(array)})
    return with_forward(run, hidden_states=tuple(layers))


def with_step(run, step):
    return full(run, greedy=decoding(logits=nudged(step_logits(*IDS), step, 7)))


def raised(run, phase, **changed):
    failure = Failure(phase=phase, type="ValueError", message="no", traceback="")
    return full(run, **changed).model_copy(update={"failures": (failure,)})


def in_padding(run, value):
    array = values(2, 6, 8, seed=16)
    array[1, 0] = value
    return with_forward(run, logits=MEMORY.put(array), real_rows=((0, 6), (3, 6)))


def drawn(run, seed):
    return with_forward(run, logits=MEMORY.put(values(1, 6, 8, seed=seed)))


FILLS = {"a": 63, "b": 64}


def filled(run):
    return values(4) * 0 + FILLS[run]


PLANTED = {
    "weights of chance": lambda run: with_weight(run, values(4, seed=ord(run))),
    "a weight that nothing wrote": lambda run: with_weight(run, filled(run), origin="unwritten"),
    "a buffer that nothing wrote": lambda run: full(
        run, buffers={"model.mask": buffer(MEMORY, filled(run), unwritten=True)}
    ),
    "a buffer computed from uninitialised memory": lambda run: full(
        run, buffers={"model.mask": buffer(MEMORY, filled(run) * 2 + 1)}
    ),
    "frequencies": lambda run: full(
        run, inv_freq={"model.rotary_emb.inv_freq": frequencies(MEMORY, filled(run))}
    ),
    "scaling": lambda run: full(
        run,
        inv_freq={
            "model.rotary_emb.inv_freq": frequencies(
                MEMORY, values(2, seed=15), scaling=float(FILLS[run])
            )
        },
    ),
    "the embeddings": lambda run: with_layer(run, 0) if run == "b" else full(run),
    "the last layer": lambda run: with_layer(run, 2) if run == "b" else full(run),
    "the logits": lambda run: drawn(run, ord(run)),
    "padding": lambda run: in_padding(run, FILLS[run]),
    "the first step": lambda run: with_step(run, 0) if run == "b" else full(run),
    "the first step through the cache": lambda run: with_step(run, 1) if run == "b" else full(run),
    "an exception of run b": lambda run: (
        raised(run, "forward short", forward={}) if run == "b" else full(run)
    ),
    "an exception of run a": lambda run: (
        raised(run, "greedy short", greedy={}) if run == "a" else full(run)
    ),
    "a tensor that only run a has": lambda run: (
        with_weight(run, values(4)) if run == "a" else full(run)
    ),
    "no load in run b": lambda run: (
        capture("4.48", run=run, status="failed") if run == "b" else full(run)
    ),
}
"""Planted case -> what a full run observes of it."""

STABLE = {
    "clean": full,
    "a byte that is a value": lambda run: with_weight(
        run, filled("a"), origin="unwritten" if run == "a" else "derived"
    ),
    "the same exception in both runs": lambda run: raised(run, "greedy short", greedy={}),
    "no load": lambda run: capture("4.48", run=run, status="failed"),
    "absent": lambda run: capture("4.48", run=run, status="absent"),
}


class Process:
    """A stack process of a model; a short run observes the part that it has of a full one."""

    def n_beside(self, threads):
        return 2

    def __init__(self, observed, short=shortened, ended=None):
        self.observed, self.short = observed, short
        self.ended = ended or {}
        self.ran = []

    async def run(self, job, started):
        started()
        self.ran.append((job["run"], "short" if job["short"] else "full"))
        written = self.observed(job["run"])
        if job["short"]:
            written = self.short(written)
        leave(job["capture"], written)
        Path(job["log"]).write_text("")
        return self.ended.get(job["run"], Ended(exit=0))


def observe(root, process, wanted=(), **changed):
    ready = ready_cell(CELL, process, model=model_spec(**changed), stack=STACK)
    return asyncio.run(CellRunner(job_cache(root)).observe(ready, wanted))


def judged(runs):
    state = alone(runs, MEMORY)
    return state.verdict, state.headline, state.unstable, state.failures, state.unfinished


BOTH, ALL = [("a", "full"), ("b", "short")], [("a", "full"), ("b", "short"), ("b", "full")]


@pytest.mark.parametrize("observed", PLANTED.values(), ids=PLANTED)
def test_a_planted_case_is_judged_by_two_full_runs(tmp_path, observed):
    process = Process(observed)
    runs = observe(tmp_path / "default", process)
    assert process.ran == ALL
    deep = observe(tmp_path / "deep", Process(observed), second_in_full=True)
    assert runs == deep
    assert judged(runs) == judged(deep)
    assert judged(runs)[0] == Verdict.UNSTABLE


@pytest.mark.parametrize("observed", STABLE.values(), ids=STABLE)
def test_a_cell_that_repeats_itself_is_judged_alike_by_either_run(tmp_path, observed):
    runs = observe(tmp_path / "default", Process(observed))
    deep = observe(tmp_path / "deep", Process(observed), second_in_full=True)
    assert judged(runs) == judged(deep)
    assert judged(runs)[0] != Verdict.UNSTABLE


def test_a_cell_that_repeats_itself_needs_no_full_second_run(tmp_path):
    process = Process(full)
    first, second = observe(tmp_path, process)
    assert process.ran == BOTH
    assert (first.extent, second.extent) == ("full", "short")
    assert not list((tmp_path / "captures").rglob("[ab].*.json"))


def test_what_only_a_full_second_run_sees(tmp_path):
    def late(run):
        return with_step(run, 2) if run == "b" else full(run)

    assert judged(observe(tmp_path / "default", Process(late)))[0] is None
    deep = observe(tmp_path / "deep", Process(late), second_in_full=True)
    assert judged(deep)[2][0].what == "short"
    assert judged(deep)[0] == Verdict.UNSTABLE


# what a short run lacks is never taken for agreement

LACKING = {
    "a prompt was left out": {
        "signals.forward": {},
        "skips": (Skip(what="forward short", reason="no memory", why="cost"),),
    },
    "no decoding": {"signals.greedy": None},
    "no weights": {"signals.weights": None},
    "no buffers": {"signals.buffers": {}},
    "memory was short": {
        "failures": (Failure(phase="usage", type="MemoryError", message="no memory", traceback=""),)
    },
}


@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING)
def test_a_short_run_that_lacks_something_is_followed_by_a_full_one(tmp_path, lacking):
    def less(run):
        parts = {key.partition(".")[2]: v for key, v in lacking.items() if "." in key}
        signals = run.signals.model_copy(update=parts)
        update = {key: v for key, v in lacking.items() if "." not in key}
        return shortened(run.model_copy(update=update | {"signals": signals}))

    process = Process(full, short=less)
    runs = observe(tmp_path, process)
    assert process.ran == ALL
    assert judged(runs)[0] is None
    assert runs[1].extent == "full"


ENDS = {
    "a hang": Ended(timed_out=True, phase="greedy short", stalled="no progress for 120 s"),
    "a crash": Ended(signal=11, phase="greedy short"),
}


@pytest.mark.parametrize("ended", ENDS.values(), ids=ENDS)
def test_a_short_run_that_ended_early_is_not_replaced_by_one_that_finishes(tmp_path, ended):
    def stopped(run):
        signals = run.signals.model_copy(update={"greedy": None})
        unfinished = Unfinished(phase="greedy short", reason="")
        update = {"status": "unfinished", "unfinished": unfinished, "signals": signals}
        return run.model_copy(update=update)

    process = Process(full, lambda run: stopped(shortened(run)), {"b": ended})
    runs = observe(tmp_path / "default", process)
    assert process.ran == BOTH
    deep = Process(lambda run: stopped(full(run)) if run == "b" else full(run), ended={"b": ended})
    assert judged(runs) == judged(observe(tmp_path / "deep", deep, second_in_full=True))
    verdict, _, _, _, unfinished = judged(runs)
    assert verdict == Verdict.UNSTABLE or unfinished.phase == "greedy short"


def test_a_decoding_without_the_hash_of_its_start_agrees_with_no_short_run():
    first = full("a")
    facts = first.signals.greedy["short"].model_copy(update={"start": None})
    signals = first.signals.model_copy(update={"greedy": {"short": facts}})
    assert agrees(shortened(full("b")), first)
    assert not agrees(shortened(full("b")), first.model_copy(update={"signals": signals}))


# what is kept


def test_captures_of_a_short_second_run_serve_another_run_but_no_deep_one(tmp_path):
    runs = observe(tmp_path, Process(full))
    again = Process(full)
    assert observe(tmp_path, again) == runs
    assert again.ran == []
    deep = Process(full)
    first, second = observe(tmp_path, deep, second_in_full=True)
    assert deep.ran == [("b", "full")]
    assert (first, second.extent) == (runs[0], "full")


def test_captures_of_a_deep_run_serve_any_other(tmp_path):
    deep = observe(tmp_path, Process(full), second_in_full=True)
    again = Process(full)
    assert observe(tmp_path, again) == deep
    assert again.ran == []


def test_a_full_second_run_that_followed_a_short_one_is_kept(tmp_path):
    runs = observe(tmp_path, Process(PLANTED["the logits"]))
    again = Process(full)
    assert observe(tmp_path, again) == runs
    assert again.ran == []


@pytest.mark.parametrize(("observed", "ran"), [(full, BOTH), (PLANTED["the logits"], ALL)])
def test_a_second_look_runs_as_the_first_did(tmp_path, observed, ran):
    observe(tmp_path, Process(observed))
    again = Process(observed)
    observe(tmp_path, again, ["ab" * 32])
    assert again.ran == ran


def test_a_short_capture_is_no_answer_to_a_job_for_a_full_one(tmp_path):
    class Confused(Process):
        async def run(self, job, started):
            return await super().run(job | {"short": job["run"] == "b"}, started)

    _, second = observe(tmp_path, Confused(full), second_in_full=True)
    assert second.status == "failed"
    assert "short capture of llama/float32-sdpa@4.48, run b" in second.failure.message

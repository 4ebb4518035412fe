"""Two runs of a cell: what they disagree about, what ended early, and which of them is compared."""

import os

import pytest

from samebits.compare.phases import best_first, exception_key, incomplete_at, same_exception
from samebits.diagnose.alone import alone
from samebits.diagnose.verdict import result
from samebits.records.capture import OF_THE_MODEL, Skip, Unfinished
from samebits.records.ids import Verdict
from tests.support.builders import (
    capture,
    cell_id,
    decoded,
    nudged,
    sound,
    sound_signals,
    values,
    with_signals,
)
from tests.support.partial import BEHIND, LATE, both, ended, raised, raising


def verdict(memory, *runs):
    return result(cell_id("5.0"), runs, both(memory, "4.48"), memory)


# what ended early


@pytest.mark.parametrize("which", [0, 1, None])
def test_a_run_that_ended_early_makes_a_cell_not_finished_and_never_unstable(memory, which):
    runs = [
        ended(run, greedy=None) if which in (i, None) else run for i, run in enumerate(both(memory))
    ]
    found = verdict(memory, *runs)
    assert (found.verdict, found.judged) == (Verdict.NOT_FINISHED, Verdict.NOT_FINISHED)
    assert found.unstable == ()
    assert found.unfinished == LATE
    assert found.headline == (
        "not finished: no progress for 120 s in phase greedy short (forward 3 of 12)"
    )
    assert found.rest == Verdict.IDENTICAL


def test_other_bytes_in_what_both_runs_observed_are_unstable_finished_or_not(memory):
    one, other = both(memory)
    logits = memory.put(nudged(values(1, 6, 8, seed=16), 0, 2, 3))
    forward = {"short": other.signals.forward["short"].model_copy(update={"logits": logits})}
    found = verdict(memory, ended(one, greedy=None), ended(other, greedy=None, forward=forward))
    assert (found.verdict, found.unstable) == (Verdict.UNSTABLE, ("logits short",))


def test_the_run_that_finished_is_the_one_that_is_compared(memory):
    one, other = both(memory)
    runs = ended(one, greedy=None, forward={}), other
    assert [run.run for run in best_first(runs)] == ["b", "a"]
    found = verdict(memory, *runs)
    assert found.verdict == Verdict.NOT_FINISHED
    assert {s.signal for s in found.signals if s.outcome == "identical"} >= {"logits", "greedy"}
    assert any(note.startswith("run a did not finish (") for note in found.notes)


def test_of_two_that_did_not_finish_the_one_that_observed_more_is_compared(memory):
    one, other = both(memory)
    runs = ended(one, forward=None, greedy=None), ended(other, greedy=None)
    assert best_first(runs)[0].run == "b"
    assert best_first(both(memory))[0].run == "a"
    gone = dict.fromkeys(("weights", "buffers", "inv_freq", "forward", "greedy"))
    for name in gone:
        less = {signal: None for signal in gone if signal != name}
        assert best_first((ended(one, **gone), ended(other, **less)))[0].run == "b", name


@pytest.mark.parametrize("phase", ["relations", "usage", "integrity", "evidence", "first token"])
def test_what_ends_behind_all_that_bears_on_the_verdict_changes_no_verdict(memory, phase):
    one, other = both(memory)
    at = BEHIND.model_copy(update={"phase": phase})
    found = verdict(memory, ended(one, at), other)
    assert (found.verdict, found.rest, found.unfinished) == (Verdict.IDENTICAL, None, None)
    assert found.notes == (
        (
            "run a did not finish, but only after everything that the verdict needs: "
            f"no progress for 120 s in phase {phase} (forward 31 of 350)"
        ),
    )


@pytest.mark.parametrize("gone", ["weights", "buffers", "forward", "greedy"])
def test_a_phase_that_explains_is_behind_only_if_nothing_is_missing(memory, gone):
    assert incomplete_at(ended(sound(memory), BEHIND)) is None
    assert incomplete_at(ended(sound(memory), BEHIND, **{gone: None})) == BEHIND


def test_what_was_left_out_for_another_reason_is_not_missing(memory):
    run = ended(sound(memory, skips={"greedy": "Llama does not generate"}), BEHIND, greedy=None)
    assert incomplete_at(run) is None
    for what, at in (
        ("greedy long", BEHIND),
        ("prompt long", BEHIND),
        ("probe mine.score", BEHIND),
        ("usage", None),
    ):
        late = Skip(what=what, reason="the run ended before", why="unfinished")
        assert incomplete_at(run.model_copy(update={"skips": (*run.skips, late)})) == at
        alone_skipped = run.model_copy(update={"skips": (late,)})
        assert incomplete_at(alone_skipped) == BEHIND  # nothing else says why greedy is missing
    bare = ended(sound(memory), BEHIND, forward=None, greedy=None)
    assert incomplete_at(bare.model_copy(update={"failures": (raised("forward short"),)})) is None
    told = Skip(what="prompt short", reason="no window", why="plain")
    assert incomplete_at(bare.model_copy(update={"skips": (told,)})) is None
    assert incomplete_at(bare.model_copy(update={"failures": (raised("usage"),)})) == BEHIND


@pytest.mark.parametrize("why", ["cost", "instrument", "inputs", "unfinished"])
def test_what_one_run_left_out_is_no_disagreement(memory, why):
    one, other = both(memory)
    skip = Skip(what="greedy", reason="no memory is left", why=why)
    gone = other.signals.model_copy(update={"greedy": None})
    found = alone((one, other.model_copy(update={"skips": (skip,), "signals": gone})))
    assert found.verdict is None
    for of_the_model in OF_THE_MODEL:
        other_skip = skip.model_copy(update={"why": of_the_model})
        found = alone((one, other.model_copy(update={"skips": (other_skip,), "signals": gone})))
        assert found.verdict is Verdict.UNSTABLE
        assert tuple(map(str, found.unstable)) == ("decode short", "greedy short")


@pytest.mark.parametrize(
    ("what", "excuses"),
    [
        ("greedy", True),
        ("greedy long", True),
        ("prompt long", True),
        ("greedy short", False),
        ("prompt short", False),
        ("logits long", False),
        ("usage", False),
    ],
)
def test_what_one_run_left_out_excuses_nothing_else(memory, what, excuses):
    forward = dict.fromkeys(("short", "long"), sound_signals(memory)["forward"]["short"])
    rows = {"short": decoded(memory, 3), "long": decoded(memory, 4)}
    one, other = both(memory, forward=forward, greedy=rows)
    lacking = with_signals(other, greedy={"short": rows["short"]})
    skip = Skip(what=what, reason="no time is left", why="cost")
    failure = raised(what, type="OSError", message="Input/output error")
    ways = [{"skips": (skip,)}, {"failures": (failure,)}]
    for way in ways[:1] if what.startswith("prompt") else ways:  # no phase has that name
        found = alone((one, lacking.model_copy(update=way)))
        assert found.verdict is (None if excuses else Verdict.UNSTABLE)


def test_a_run_that_ended_before_it_had_observed_anything(memory):
    runs = tuple(
        capture("5.0", run=run, status="unfinished").model_copy(
            update={"unfinished": Unfinished(phase="load", reason="killed by signal 9")}
        )
        for run in "ab"
    )
    found = verdict(memory, *runs)
    assert (found.verdict, found.rest) == (Verdict.NOT_FINISHED, None)
    assert found.headline == "not finished: killed by signal 9 in phase load"


# what raised


def test_a_phase_that_raised_in_one_run_alone_is_unstable(memory):
    one, other = both(memory)
    found = verdict(memory, raising(one, raised()), other)
    assert found.verdict == Verdict.UNSTABLE
    assert found.unstable == ("greedy short (raised ValueError only in run a)",)
    assert verdict(memory, raising(one, raised()), raising(other, raised())).verdict == "failed"


def test_what_run_a_alone_asks_is_a_failure_and_not_unstable(memory):
    """A forward of Qwen2-VL 5.2 raises behind one with two rows of images, and run b repeats no forward."""
    run_a, run_b = both(memory)
    failing = raising(run_a, raised("state short"), greedy=run_a.signals.greedy)
    judged = verdict(memory, failing, run_b)
    assert (judged.verdict, judged.failure) == (Verdict.FAILED, raised("state short"))


@pytest.mark.parametrize("signal", ["forward short", "trace weights", "buffers", "greedy short"])
def test_what_raised_once_is_named_by_a_signal(memory, signal):
    one, other = both(memory)
    name = {
        "forward short": "logits short",
        "trace weights": "weights all",
        "buffers": "buffers all",
    }
    found = verdict(memory, raising(one, raised(signal), greedy=one.signals.greedy), other)
    assert found.unstable == (f"{name.get(signal, signal)} (raised ValueError only in run a)",)


def test_a_phase_that_raised_beside_a_run_that_ended_early_is_not_unstable(memory):
    one, other = both(memory)
    found = verdict(memory, raising(one, raised()), ended(other, greedy=None))
    assert (found.verdict, found.failure) == (Verdict.FAILED, raised())
    assert found.unfinished == LATE
    later = LATE.model_copy(update={"phase": "greedy long"})
    found = verdict(memory, ended(raising(one, raised()), later), other)
    assert found.verdict == Verdict.NOT_FINISHED


@pytest.mark.parametrize(
    ("type", "message"),
    [
        ("MemoryError", "8 GiB"),
        ("torch.OutOfMemoryError", "8 GiB"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_want_of_memory_is_no_failure(memory, type, message):
    runs = [raising(run, raised(type=type, message=message)) for run in both(memory)]
    found = verdict(memory, *runs)
    assert (found.verdict, found.rest) == (Verdict.NOT_FINISHED, Verdict.IDENTICAL)
    assert found.headline == f"not finished: {type}: {message} in phase greedy short"
    loads = [
        capture("5.0", run=run, status="failed").model_copy(
            update={"failure": raised("load", type=type, message=message)}
        )
        for run in "ab"
    ]
    assert verdict(memory, *loads).verdict == Verdict.NOT_FINISHED


def test_a_phase_that_memory_ended_is_no_failure(memory):
    short = raised("memory", type="RuntimeError", message="8 GiB are not left")
    runs = [raising(run, short, greedy=run.signals.greedy) for run in both(memory)]
    assert verdict(memory, *runs).verdict == Verdict.NOT_FINISHED


@pytest.mark.parametrize(
    ("number", "expected"),
    [(28, Verdict.NOT_FINISHED), (5, Verdict.NOT_FINISHED), (2, Verdict.FAILED)],
)
def test_a_full_or_broken_disk_is_no_failure_even_if_both_runs_meet_it(memory, number, expected):
    lost = raised(type="OSError", message=f"[Errno {number}] {os.strerror(number)}")
    runs = [raising(run, lost) for run in both(memory)]
    assert verdict(memory, *runs).verdict == expected


def test_a_file_that_could_not_be_read_once_is_no_failure_and_twice_is_one(memory):
    one, other = both(memory)
    lost = raised(type="OSError", message="Input/output error")
    assert verdict(memory, raising(one, lost), other).verdict == Verdict.NOT_FINISHED
    assert verdict(memory, one, raising(other, lost)).verdict == Verdict.NOT_FINISHED
    twice = verdict(memory, raising(one, lost), raising(other, lost))
    assert (twice.verdict, twice.unfinished) == (Verdict.FAILED, None)
    elsewhere = raised("greedy long", type="OSError", message="Input/output error")
    found = verdict(memory, raising(one, lost), raising(other, elsewhere))
    assert found.unfinished.phase == "greedy short"


def test_what_explains_may_raise_without_a_verdict(memory):
    one, other = both(memory)
    found = verdict(memory, raising(one, raised("usage"), greedy=one.signals.greedy), other)
    assert found.verdict == Verdict.IDENTICAL
    assert any("does not affect the verdict" in note for note in found.notes)


def crashed(run, phase, **signals):
    crash = raised(phase, "no result", "killed by signal 11 (SIGSEGV)")
    return ended(run, LATE.model_copy(update={"phase": phase}), **signals).model_copy(
        update={"failures": (crash,)}
    )


def test_a_crash_is_a_failure_of_its_phase_and_what_was_observed_is_compared(memory):
    runs = [crashed(run, "greedy short", greedy=None) for run in both(memory)]
    found = verdict(memory, *runs)
    assert (found.verdict, found.rest) == (Verdict.FAILED, Verdict.IDENTICAL)
    assert found.headline == (
        "failed in phase greedy short: no result: killed by signal 11 (SIGSEGV)"
    )
    loads = [crashed(capture("5.0", run=run), "load") for run in "ab"]
    found = verdict(memory, *loads)
    assert (found.verdict, found.rest) == (Verdict.FAILED, None)


@pytest.mark.parametrize(
    ("phase", "name"), [("greedy short", "greedy short"), ("load", "status: phase load")]
)
def test_a_crash_of_one_run_alone_is_unstable(memory, phase, name):
    one, other = both(memory)
    left = crashed(one, phase, greedy=None) if phase != "load" else crashed(capture("5.0"), "load")
    found = verdict(memory, left, other)
    how = "(ended only in run a: killed by signal 11 (SIGSEGV))"
    assert (found.verdict, found.unstable) == (Verdict.UNSTABLE, (f"{name} {how}",))


def test_a_probe_that_crashes_in_one_run_and_raises_in_the_other_is_not_unstable(memory):
    one, other = both(memory)
    left = crashed(one, "probe mine")
    assert verdict(memory, left, other).verdict == Verdict.UNSTABLE
    again = raising(other, raised("probe mine"), greedy=other.signals.greedy)
    assert verdict(memory, left, again).unstable == ()


def test_a_file_that_was_lost_beside_a_run_that_did_not_load_is_unstable(memory):
    lost = raised(type="OSError", message="Input/output error")
    found = verdict(memory, raising(sound(memory, "5.0"), lost), left(memory, "refused", "b"))
    assert found.verdict == Verdict.UNSTABLE


def test_a_crash_in_what_explains_makes_no_verdict(memory):
    one, other = both(memory)
    assert verdict(memory, crashed(one, "relations"), other).verdict == Verdict.IDENTICAL


# how two runs ended

LOST = {"failure": raised("process", "no result", "killed by signal 9 (SIGKILL)")}
REFUSED = {"failure": raised("load", "ImportError", "no such name")}
ENDED = {"unfinished": Unfinished(phase="load", reason="no progress for 120 s")}


def left(memory, how, run):
    """Return what a run left that ended in one of several ways."""
    if how == "complete":
        return sound(memory, "5.0", run=run)
    if how == "late":
        return ended(sound(memory, "5.0", run=run), greedy=None)
    if how == "loaded":
        load = sound_signals(memory)["load"]
        return ended(capture("5.0", run=run, load=load), ENDED["unfinished"])
    status = {"refused": "failed", "lost": "failed", "early": "unfinished"}.get(how, how)
    more = {"refused": REFUSED, "lost": LOST, "early": ENDED}.get(how, {})
    return capture("5.0", run=run, status=status).model_copy(update=more)


@pytest.mark.parametrize(
    ("one", "other", "verdict_", "rest"),
    [
        ("complete", "refused", "unstable", None),
        ("complete", "absent", "unstable", None),
        ("absent", "refused", "unstable", None),
        ("complete", "lost", "not finished", "identical"),
        ("complete", "early", "not finished", "identical"),
        ("complete", "late", "not finished", "identical"),
        ("late", "lost", "not finished", "identical"),
        ("late", "early", "not finished", "identical"),
        ("late", "refused", "not finished", "identical"),
        ("loaded", "refused", "not finished", None),
        ("early", "early", "not finished", None),
        ("early", "lost", "not finished", None),
        ("absent", "early", "not finished", None),
        ("absent", "lost", "not finished", None),
        ("absent", "absent", "absent", None),
        ("refused", "refused", "failed", None),
        ("refused", "early", "failed", None),
        ("refused", "lost", "failed", None),
        ("lost", "lost", "failed", None),
    ],
)
def test_two_runs_that_ended_in_other_ways(memory, one, other, verdict_, rest):
    for first, second in ((one, other), (other, one)):
        found = verdict(memory, left(memory, first, "a"), left(memory, second, "b"))
        assert (found.verdict, found.rest) == (verdict_, rest), (first, second)


# when are two exceptions one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at 0x7f3c2a", "at 0x55aa"),
        ("in /a/b/lib.py, line 12", "in /home/x/lib.py, line 90"),
        ("see …/models/t5.py:12", "see …/models/t5.py:99"),
        ("needs transformers 4.48.3", "needs transformers 5.2.0"),
        ("two  words", "two\nwords"),
    ],
)
def test_addresses_paths_and_lines_do_not_part_two_exceptions(one, other):
    assert same_exception(raised(message=one), raised(message=other))


@pytest.mark.parametrize(
    "changed",
    [
        {"message": "another token"},
        {"type": "TypeError"},
        {"phase": "forward short"},
        {"message": "no start token 3.5"},
    ],
)
def test_everything_else_does(changed):
    assert not same_exception(raised(), raised().model_copy(update=changed))


def test_the_module_of_an_exception_and_the_step_of_a_load_do_not_part_it():
    assert same_exception(raised(type="transformers.a.Bad"), raised(type="transformers.b.Bad"))
    assert same_exception(raised("config"), raised("load"))
    assert same_exception(raised("greedy short"), raised("greedy long"))
    assert exception_key(raised("greedy short"))[0] == "greedy"


def test_raised_is_the_failure_of_the_load_or_of_the_first_phase(memory):
    assert sound(memory).raised is None
    assert raising(sound(memory), raised(), raised("greedy long")).raised == raised()
    assert capture("5.0", status="failed").raised.type == "ImportError"


def test_rows_of_a_batch_belong_to_their_prompt(memory):
    rows = {"pair[0]": decoded(memory, 3), "pair[1]": decoded(memory, 4)}
    forward = {"pair": sound_signals(memory)["forward"]["short"]}
    one, other = both(memory, forward=forward, greedy=rows)
    assert verdict(memory, raising(one, raised("greedy pair")), other).unstable == (
        "greedy pair (raised ValueError only in run a)",
    )


def test_the_place_of_an_exception_makes_it_no_other_one():
    """A release that moves the line, or the function, raises the same."""

    def key(place):
        message = f"RuntimeError: sizes differ (at {place})"
        return exception_key(raised("relations", message=message))

    old, moved = "models/x/modeling_x.py:12 in forward", "models/x/modeling_x.py:99 in attend"
    assert key(f"transformers/{old}") == key(f"transformers/{moved}")
    assert key(f"transformers/{old}") != exception_key(raised("relations", message="other sizes"))

"""Probes of the user's: what they return is compared by bytes, and counts only if it is to."""

import numpy as np
import pytest

from samebits.compare.probes import informing, with_repeats
from samebits.compare.signals import compare
from samebits.diagnose.verdict import result
from samebits.records.capture import Failure, Frame, ProbeAnswer, ProbeFacts
from samebits.records.ids import Verdict
from tests.support.builders import cell_id, sound, values, with_signals


def answer(memory, tensors=None, **more):
    refs = {path: memory.put(value) for path, value in (tensors or {}).items()}
    return ProbeAnswer(tensors=refs, **more)


def raised(kind="ValueError", message="no", line=3):
    frames = (Frame(file="mine.py", line=line, function="pooling"),)
    return Failure(
        phase="probe mine.pooling", type=kind, message=message, traceback="", frames=frames
    )


def probed(memory, given, stack="4.48", *, verdict=True, run="a", function="pooling"):
    facts = ProbeFacts(verdict=verdict, answers={function: given})
    return with_signals(sound(memory, stack, run=run), probes={"mine": facts})


def both_runs(memory, first, second=None, stack="4.48", *, verdict=True):
    runs = [
        probed(memory, given, stack, verdict=verdict, run=run)
        for given, run in ((first, "a"), (second or first, "b"))
    ]
    return with_repeats(runs[0], runs[1]), with_repeats(runs[1], runs[0])


def judged(memory, reference, candidate, *, verdict=True):
    """Return the result of a pair of cells; each side is one answer, or one for each run."""
    sides = [
        both_runs(memory, *(s if isinstance(s, tuple) else (s,)), stack=stack, verdict=verdict)
        for s, stack in ((reference, "4.48"), (candidate, "5.x"))
    ]
    return result(cell_id("5.x"), sides[1], sides[0], memory)


def comparison(memory, reference, candidate):
    sides = probed(memory, reference), probed(memory, candidate, "5.x")
    (signal,) = [s for s in compare(*sides, memory) if s.signal == "mine"]
    return signal


def outcomes(signal):
    return [(item.name, item.outcome) for item in signal.items]


def test_equal_bytes_and_facts_are_identical(memory):
    same = answer(memory, {"pooling.short": values(1, 4)}, facts={"pooling.n": 3})
    signal = comparison(memory, same, same)
    assert (signal.outcome, signal.n_items) == ("identical", 2)
    assert judged(memory, same, same).verdict is Verdict.IDENTICAL


def test_another_byte_differs_and_is_the_first_difference(memory):
    reference = answer(memory, {"pooling.short": values(1, 4)})
    candidate = answer(memory, {"pooling.short": values(1, 4, seed=1)})
    cell = judged(memory, reference, candidate)
    assert cell.verdict is Verdict.UNDECIDED
    assert cell.first.signal == "mine"
    assert "pooling.short" in cell.headline


def test_payloads_of_nan_and_signs_of_zero_count(memory):
    for before, after in ((0x7FC00000, 0x7FC00001), (0x00000000, 0x80000000)):
        sides = [
            answer(memory, {"pooling": np.array([bits], np.uint32).view(np.float32)})
            for bits in (before, after)
        ]
        assert comparison(memory, *sides).outcome == "differs"
        assert comparison(memory, sides[0], sides[0]).outcome == "identical"


@pytest.mark.parametrize(("before", "after"), [(1, True), ("1", 1), (None, False), ("a", "b")])
def test_facts_of_another_type_or_text_differ(memory, before, after):
    sides = [answer(memory, facts={"pooling.n": fact}) for fact in (before, after)]
    signal = comparison(memory, *sides)
    assert outcomes(signal) == [("pooling.n", "differs")]
    assert "in the reference" in signal.items[0].note


def test_a_part_of_one_side_differs(memory):
    reference = answer(memory, facts={"pooling.n": 1})
    candidate = answer(memory, {"pooling.extra": values(2)}, facts={"pooling.n": 1})
    signal = comparison(memory, reference, candidate)
    assert outcomes(signal) == [("pooling.extra", "only here")]
    assert signal.outcome == "differs"


def test_one_that_informs_changes_no_verdict(memory):
    sides = [answer(memory, {"pooling": values(2, seed=seed)}) for seed in (0, 1)]
    cell = judged(memory, *sides, verdict=False)
    assert cell.verdict is Verdict.IDENTICAL
    assert "mine" not in {signal.signal for signal in cell.signals}
    (informs,) = cell.informing
    assert (informs.signal, informs.outcome) == ("mine", "differs")
    assert "probe mine, which only informs, differs: pooling" in cell.notes


def test_random_numbers_are_not_repeatable_and_no_accusation(memory):
    runs = [
        tuple(answer(memory, {"pooling": values(2, seed=s)}) for s in pair)
        for pair in ((0, 1), (2, 3))
    ]
    for verdict in (True, False):
        cell = judged(memory, *runs, verdict=verdict)
        assert cell.verdict is Verdict.IDENTICAL
        assert any("not repeatable: two runs" in note for note in cell.notes)


def test_one_that_repeats_itself_only_in_the_reference_could_not_be_compared(memory):
    sound_side = answer(memory, {"pooling": values(2)})
    restless = sound_side, answer(memory, {"pooling": values(2, seed=5)})
    cell = judged(memory, sound_side, restless)
    assert cell.verdict is Verdict.FAILED
    assert "mine could not be compared" in cell.headline
    assert judged(memory, restless, sound_side).verdict is Verdict.IDENTICAL
    assert judged(memory, sound_side, restless, verdict=False).verdict is Verdict.IDENTICAL


def test_an_exception_of_the_candidate_alone_fails_it_if_the_probe_counts(memory):
    reference, candidate = answer(memory, {"pooling": values(2)}), ProbeAnswer(failure=raised())
    cell = judged(memory, reference, candidate)
    assert (cell.verdict, cell.rest) == (Verdict.FAILED, Verdict.IDENTICAL)
    assert cell.headline == "failed in phase probe mine.pooling: ValueError: no"
    informed = judged(memory, reference, candidate, verdict=False)
    assert informed.verdict is Verdict.IDENTICAL
    assert any(
        "raised in the candidate: ValueError: no (mine.py:3)" in note for note in informed.notes
    )


def test_an_exception_of_both_sides_or_of_the_reference_is_no_accusation(memory):
    value, failed = answer(memory, {"pooling": values(2)}), ProbeAnswer(failure=raised())
    assert judged(memory, failed, failed).verdict is Verdict.IDENTICAL
    assert judged(memory, failed, value).verdict is Verdict.IDENTICAL
    other = ProbeAnswer(failure=raised("TypeError", "other"))
    assert judged(memory, failed, other).verdict is Verdict.IDENTICAL


def test_an_exception_in_one_run_only_is_not_repeatable(memory):
    value, failed = answer(memory, {"pooling": values(2)}), ProbeAnswer(failure=raised())
    cell = judged(memory, (value, failed), (value, failed))
    assert cell.verdict is Verdict.IDENTICAL
    assert any("not repeatable" in note for note in cell.notes)


def test_a_probe_that_the_machine_ended_is_no_exception_of_the_release(memory):
    value = answer(memory, {"pooling": values(2)})
    killed = ProbeAnswer(failure=raised("Lost", "it was killed by signal 9"))
    cell = judged(memory, value, killed)
    assert cell.verdict is Verdict.FAILED
    assert "could not be compared" in cell.headline


def test_a_file_that_did_not_run_on_one_side_is_not_identical(memory):
    given = answer(memory, {"pooling": values(2)})
    runs = both_runs(memory, given)
    without = tuple(sound(memory, "5.x", run=run) for run in "ab")
    cell = result(cell_id("5.x"), without, runs, memory)
    assert cell.verdict is Verdict.FAILED
    assert "mine could not be compared: not observed in the candidate" in cell.headline


def test_one_left_out_for_its_cost_is_said_to_be(memory):
    value, left_out = (
        answer(memory, {"pooling": values(2)}),
        ProbeAnswer(left_out="the budget is used"),
    )
    sides = probed(memory, value, verdict=False), probed(memory, left_out, "5.x", verdict=False)
    (signal,) = informing(*sides, memory)
    assert signal.outcome == "not compared"
    assert "not run in the candidate: the budget is used" in signal.note

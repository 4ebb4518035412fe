"""Signal state: what one release leaves behind and the other does not is a difference."""

from samebits.compare.signals import compare
from samebits.compare.stability import disagreements
from samebits.compare.state import BOTH
from samebits.diagnose.verdict import result
from samebits.ladder.judge import ladder
from samebits.records.capture import Skip
from samebits.records.state import StateSignal
from tests.support.builders import STATE_LEFT as LEFT
from tests.support.builders import cell_id, sound, with_signals

CLEAN = StateSignal(prompt="short", holds=True, hashes={"logits": "a"})
UNKNOWN = LEFT.model_copy(update={"is_undone": False, "causes": ()})
RANDOM = StateSignal(prompt="short", holds=False, outputs=("logits",), repeats=False)


def compared(memory, reference, candidate):
    signals = compare(
        with_signals(sound(memory), state=reference),
        with_signals(sound(memory, "5.0"), state=candidate),
        memory,
    )
    return next((signal for signal in signals if signal.signal == "state"), None)


def judged(memory, reference, candidate):
    sides = [
        (with_signals(sound(memory, stack), state=state), sound(memory, stack, run="b"))
        for stack, state in (("5.0", candidate), ("4.48", reference))
    ]
    cell = result(cell_id("5.0"), *sides, memory)
    if cell.verdict != "undecided":
        return cell.verdict, None
    runs = sides[1][0], sides[0][0]
    return cell.verdict, ladder(*runs, cell.signals, cell.splits, memory, None)


def test_two_sides_that_leave_nothing_are_identical(memory):
    assert compared(memory, CLEAN, CLEAN).outcome == "identical"
    assert judged(memory, CLEAN, CLEAN) == ("identical", None)


def test_a_cell_that_never_tried_has_no_such_signal(memory):
    assert compared(memory, None, None) is None
    assert judged(memory, None, None) == ("identical", None)


def test_what_only_one_side_leaves_is_a_difference_in_either_direction(memory):
    for sides, where in (
        ((CLEAN, LEFT), "in the candidate it leaves"),
        ((LEFT, CLEAN), "in the reference it"),
    ):
        signal = compared(memory, *sides)
        assert signal.outcome == "differs"
        (item,) = signal.items
        assert item.note.startswith(where)
        assert "the buffer model.rotary_emb.inv_freq" in item.note
        assert "off by 0.006" in item.note
        verdict, climbed = judged(memory, *sides)
        assert (verdict, climbed.kind, climbed.rule) == ("undecided", "diverged", "state")


def test_without_proof_of_what_was_left_the_kind_stays_undecided(memory):
    verdict, climbed = judged(memory, CLEAN, UNKNOWN)
    assert (verdict, climbed.kind) == ("undecided", "undecided")
    assert "something outside" in compared(memory, CLEAN, UNKNOWN).items[0].note


def test_the_same_state_left_on_both_sides_is_noted(memory):
    signal = compared(memory, LEFT, LEFT)
    assert (signal.outcome, signal.items[0].note) == ("identical", BOTH)


def test_other_state_left_on_both_sides_is_a_difference(memory):
    other = LEFT.model_copy(update={"hashes": {"logits": "c"}})
    assert compared(memory, LEFT, other).outcome == "differs"


def test_other_state_after_other_logits_is_not_compared(memory):
    other = LEFT.model_copy(update={"hashes": {"logits": "c"}})
    reference = with_signals(sound(memory), state=LEFT)
    candidate = with_signals(sound(memory, "5.0"), state=other)
    facts = candidate.signals.forward["short"]
    logits = facts.logits.model_copy(update={"hash": "0" * 64})
    forward = {"short": facts.model_copy(update={"logits": logits})}
    candidate = with_signals(candidate, forward=forward)
    (signal,) = [s for s in compare(reference, candidate, memory) if s.signal == "state"]
    assert (signal.outcome, signal.excused) == ("not compared", True)


def test_a_model_that_draws_is_not_accused_here(memory):
    for sides in ((CLEAN, RANDOM), (RANDOM, CLEAN), (RANDOM, RANDOM)):
        signal = compared(memory, *sides)
        assert (signal.outcome, signal.excused) == ("not compared", True)


def test_where_one_side_had_no_time_it_is_left_open_with_the_reason(memory):
    candidate = sound(memory, "5.0")
    skip = Skip(what="state short", reason="no time", why="cost")
    candidate = candidate.model_copy(update={"skips": (*candidate.skips, skip)})
    signals = compare(with_signals(sound(memory), state=CLEAN), candidate, memory)
    (signal,) = [signal for signal in signals if signal.signal == "state"]
    assert (signal.outcome, signal.excused) == ("not compared", True)
    assert "no time" in signal.note


def test_the_two_runs_need_not_agree_as_only_one_is_asked(memory):
    a, b = with_signals(sound(memory), state=LEFT), sound(memory, run="b")
    assert disagreements(a, b) == ()

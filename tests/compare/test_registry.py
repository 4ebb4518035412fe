"""A signal is one unit of the list; a new one is compared and checked for agreement by itself."""

from samebits.compare import phases, registry, stability
from samebits.compare.signals import compare
from samebits.diagnose.verdict import result
from samebits.records.capture import Skip
from samebits.records.ids import EXPLANATORY
from tests.support.added_signal import with_toy
from tests.support.builders import cell_id, sound, values, with_signals


def outcome_of(signals, name="toy"):
    (signal,) = [signal for signal in signals if signal.signal == name]
    return signal


def test_signals_have_one_place_each_in_the_flow_of_data():
    orders = [unit.order for unit in registry.units()]
    assert orders == sorted(set(orders))
    names = registry.signal_names()
    assert set(names) == {unit.name for unit in registry.units()} | EXPLANATORY
    assert names == (
        *("load", "config", "inputs", "weights", "buffers", "inv_freq"),
        *("attention.kernel", "hidden_states", "logits", "outputs", "decode", "greedy", "state"),
    )


def test_a_phase_that_no_signal_needs_is_of_none():
    assert phases.signals_of("usage") == frozenset()
    assert phases.signals_of("forward short") == {
        *("inputs", "hidden_states", "logits", "outputs", "decode", "greedy")
    }


def test_a_new_signal_is_compared_between_logits_and_decode(toy, memory):
    tensor = values(1, 3)
    reference = with_toy(memory, sound(memory), short=tensor)
    candidate = with_toy(memory, sound(memory, "5.0"), short=tensor)
    signals = compare(reference, candidate, memory)
    assert [signal.signal for signal in signals][-3:] == ["toy", "decode", "greedy"]
    assert outcome_of(signals).outcome == "identical"
    assert "toy" in registry.signal_names()


def test_a_new_signal_that_differs_is_named_with_its_item(toy, memory):
    tensor = values(1, 3)
    reference = with_toy(memory, sound(memory), short=tensor)
    candidate = with_toy(memory, sound(memory, "5.0"), short=tensor + 1)
    signal = outcome_of(compare(reference, candidate, memory))
    assert (signal.outcome, [item.name for item in signal.items]) == ("differs", ["short"])


def test_a_new_signal_of_one_side_is_no_pass(toy, memory):
    reference = with_toy(memory, sound(memory), short=values(1, 3))
    signal = outcome_of(compare(reference, sound(memory, "5.0"), memory))
    assert signal.outcome == "not compared"


def test_a_prompt_of_one_side_is_no_pass(toy, memory):
    one, two = (dict.fromkeys(prompts, values(1, 3)) for prompts in (["short"], ["short", "long"]))
    reference, candidate = sound(memory), sound(memory, "5.0")
    for first, second in ((one, two), (two, one)):
        sides = with_toy(memory, reference, **first), with_toy(memory, candidate, **second)
        signal = outcome_of(compare(*sides, memory))
        assert signal.outcome == "not compared"
        assert signal.note.startswith("long: not observed")


def test_a_tensor_of_one_side_differs(toy, memory):
    reference = with_toy(memory, sound(memory), short=values(1, 3))
    named = {"toy": {"short": {"x": memory.put(values(1, 3))}}}
    signal = outcome_of(compare(reference, with_signals(reference, named=named), memory))
    assert (signal.outcome, signal.n_differ) == ("differs", 2)


def test_a_new_signal_that_neither_side_has_needs_a_reason(toy, memory):
    bare = [sound(memory, stack) for stack in ("4.48", "5.0")]
    assert [s for s in compare(*bare, memory) if s.signal == "toy"] == []
    skip = Skip(what="toy", reason="it takes too long", why="cost")
    skipped = [run.model_copy(update={"skips": (skip,)}) for run in bare]
    signal = outcome_of(compare(*skipped, memory))
    assert (signal.outcome, signal.excused) == ("not compared", True)
    assert signal.note == "not observed on either side: it takes too long"
    signal = outcome_of(compare(bare[0], skipped[1], memory))
    assert (signal.outcome, signal.excused) == ("not compared", False)


def test_a_tensor_without_plain_bytes_is_no_pass(toy, memory):
    skip = Skip(what="tensor toy ", reason="it is sparse", tensor_of="toy")
    reference = with_toy(memory, sound(memory), short=values(1, 3))
    candidate = with_toy(memory, sound(memory, "5.0"), short=values(1, 3))
    candidate = candidate.model_copy(update={"skips": (skip,)})
    assert outcome_of(compare(reference, candidate, memory)).outcome == "not compared"


def test_both_runs_must_agree_on_a_new_signal(toy, memory):
    tensor = values(1, 3)
    a = with_toy(memory, sound(memory), short=tensor)
    b = with_toy(memory, sound(memory, run="b"), short=tensor + 1)
    assert stability.disagreements(a, a.model_copy(update={"run": "b"})) == ()
    assert [str(disagreement) for disagreement in stability.disagreements(a, b)] == ["toy short"]


def test_only_a_new_signal_that_differs_makes_the_verdict(toy, memory):
    tensor = values(1, 3)
    references = [with_toy(memory, sound(memory, run=run), short=tensor) for run in "ab"]
    candidates = [with_toy(memory, sound(memory, "5.0", run=run), short=tensor + 1) for run in "ab"]
    judged = result(cell_id("5.0"), tuple(candidates), tuple(references), memory)
    assert judged.verdict == "undecided"
    assert judged.first.signal == "toy"
    same = [with_toy(memory, sound(memory, "5.0", run=run), short=tensor) for run in "ab"]
    assert result(cell_id("5.0"), tuple(same), tuple(references), memory).verdict == "identical"

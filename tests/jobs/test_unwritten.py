"""Uninitialised memory: a fill byte counts only if the other run does not hold the same."""

from samebits.compare.stability import never_written
from samebits.diagnose.verdict import result
from samebits.jobs.unwritten import without_false_alarms
from samebits.records.capture import BufferFacts, WeightFacts, WeightsSignal
from samebits.records.ids import Verdict
from tests.support.builders import Memory, sound, values


def run(memory, name, buffer, weight, suspect):
    """Return a capture with one buffer and one weight, reported as unwritten if ``suspect``."""
    capture = sound(memory)
    facts = BufferFacts(
        ref=memory.put(buffer), persistent=False, fresh="not compared", unwritten=suspect
    )
    origin = "unwritten" if suspect else "derived"
    weight_facts = WeightFacts(ref=memory.put(weight), kind="buffer", origin=origin)
    weights = WeightsSignal(tensors={"w": weight_facts}, checkpoint_tensors=0)
    signals = capture.signals.model_copy(update={"buffers": {"b": facts}, "weights": weights})
    return capture.model_copy(update={"run": name, "signals": signals})


def test_what_both_runs_hold_was_written():
    memory = Memory()
    content = values(4, seed=1), values(5, seed=2)
    for suspects in ((True, False), (False, True)):
        runs = [run(memory, n, *content, s) for n, s in zip("ab", suspects, strict=True)]
        assert any(map(never_written, runs))
        corrected = without_false_alarms(*runs)
        assert [never_written(capture) for capture in corrected] == [(), ()]
        assert [c.signals.weights.tensors["w"].origin for c in corrected] == ["derived", "derived"]
        cell = corrected[0].cell
        assert result(cell, corrected, corrected, memory).verdict is Verdict.REFERENCE
        assert result(cell, tuple(runs), tuple(runs), memory).verdict is Verdict.UNSTABLE


def test_what_the_runs_hold_otherwise_stays_suspected():
    memory = Memory()
    first = run(memory, "a", values(4, seed=1), values(5, seed=2), True)
    second = run(memory, "b", values(4, seed=3), values(5, seed=4), True)
    assert without_false_alarms(first, second) == (first, second)
    failed = second.model_copy(update={"signals": type(second.signals)()})
    assert without_false_alarms(first, failed) == (first, failed)

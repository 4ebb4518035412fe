"""A byte that a run filled memory with is no proof: the other run may hold the same."""

from samebits.compare.stability import never_written
from samebits.diagnose.verdict import result
from samebits.jobs.unwritten import without_false_alarms
from samebits.records.capture import BufferFacts, WeightFacts, WeightsSignal
from samebits.records.ids import Verdict
from tests.support.builders import Memory, sound, values


def run(memory, name, buffer, weight, suspect):
    """Return a capture with one buffer and one weight, which the run may suspect."""
    capture = sound(memory)
    held = BufferFacts(
        ref=memory.put(buffer), persistent=False, fresh="not compared", unwritten=suspect
    )
    origin = "unwritten" if suspect else "derived"
    fact = WeightFacts(ref=memory.put(weight), kind="buffer", origin=origin)
    weights = WeightsSignal(tensors={"w": fact}, checkpoint_tensors=0)
    signals = capture.signals.model_copy(update={"buffers": {"b": held}, "weights": weights})
    return capture.model_copy(update={"run": name, "signals": signals})


def test_what_both_runs_hold_was_written():
    memory = Memory()
    content = values(4, seed=1), values(5, seed=2)
    for suspects in ((True, False), (False, True)):
        runs = [run(memory, n, *content, s) for n, s in zip("ab", suspects, strict=True)]
        assert any(map(never_written, runs))
        told = without_false_alarms(*runs)
        assert [never_written(capture) for capture in told] == [(), ()]
        assert [c.signals.weights.tensors["w"].origin for c in told] == ["derived", "derived"]
        cell = told[0].cell
        assert result(cell, told, told, memory).verdict is Verdict.REFERENCE
        assert result(cell, tuple(runs), tuple(runs), memory).verdict is Verdict.UNSTABLE


def test_what_the_runs_hold_otherwise_stays_suspected():
    memory = Memory()
    one = run(memory, "a", values(4, seed=1), values(5, seed=2), True)
    other = run(memory, "b", values(4, seed=3), values(5, seed=4), True)
    assert without_false_alarms(one, other) == (one, other)
    failed = other.model_copy(update={"signals": type(other.signals)()})
    assert without_false_alarms(one, failed) == (one, failed)

"""The user's probes on the precision ladder: rounding, another function, facts, parts of one side."""

import numpy as np
import pytest

from samebits.compare.signals import compare
from samebits.ladder.asking import asks, merged
from samebits.ladder.judge import informing_steps, ladder
from samebits.records.capture import ProbeAnswer, ProbeFacts
from samebits.records.ladder import LadderFile, Rung, RungProbes
from tests.support.builders import cell_id, sound, values, with_signals

STACKS = ("4.48", "5.x")
POOLED = values(1, 4, seed=9)
OTHER = POOLED * np.float32(1.00001)


def probed(memory, stack, tensors=None, facts=None, *, verdict=True, repeats=True):
    refs = {path: memory.put(value) for path, value in (tensors or {}).items()}
    given = ProbeAnswer(tensors=refs, facts=facts or {}, repeats=repeats)
    probes = {"mine": ProbeFacts(verdict=verdict, answers={"pooling": given})}
    return with_signals(sound(memory, stack), probes=probes)


def file(memory, stack, tensors=None, facts=None, leaks=()):
    refs = {path: memory.put(np.asarray(value)) for path, value in (tensors or {}).items()}
    rung = Rung(probes={"mine": RungProbes(tensors=refs, facts=facts or {})}, leaks=leaks)
    return LadderFile(cell=cell_id(stack), rungs={"float64": rung, "own": Rung()})


def judged(memory, sides, exact, *, leaks=()):
    captures = [probed(memory, stack, **side) for stack, side in zip(STACKS, sides, strict=True)]
    files = [
        file(memory, stack, leaks=leaks, **side) for stack, side in zip(STACKS, exact, strict=True)
    ]
    signals = compare(*captures, memory)
    return ladder(*captures, signals, (), memory, tuple(files))


def tensors(*arrays):
    return [{"tensors": {"pooling": array}} for array in arrays]


def facts(*values):
    return [{"facts": {"pooling.n": value}} for value in values]


def test_a_difference_that_goes_away_in_float64_is_rounding(memory):
    exact = POOLED.astype(np.float64)
    result = judged(memory, tensors(POOLED, OTHER), tensors(exact, exact * (1 + 1e-15)))
    assert (result.kind, result.rule) == ("rounding", "slope")
    (step,) = [step for step in result.steps if step.signal == "mine"]
    assert (step.signal, step.what, step.prompt) == ("mine", "pooling", "")
    assert "mine pooling" in result.reason


def test_one_that_stays_is_another_function(memory):
    exact = POOLED.astype(np.float64)
    result = judged(memory, tensors(POOLED, OTHER), tensors(exact, exact * 1.00001))
    assert (result.kind, result.rule) == ("diverged", "slope")


def test_one_that_was_not_computed_in_float64_is_undecided(memory):
    assert judged(memory, tensors(POOLED, OTHER), ({}, {})).kind == "undecided"


def test_a_fact_that_differs_in_float64_diverged_and_another_is_undecided(memory):
    assert judged(memory, facts(3, 4), facts(3, 4)).kind == "diverged"
    same = judged(memory, facts(3, 4), facts(3, 3))
    assert same.kind == "undecided"
    assert "a choice that rounding flips" in same.reason
    assert judged(memory, facts(3, 4), ({}, {})).kind == "undecided"
    assert judged(memory, facts(3, 4), facts(3, 4), leaks=("aten::f",)).kind == "undecided"


@pytest.mark.parametrize("other", [POOLED[:, :3], None])
def test_another_shape_or_a_part_of_one_side_diverged(memory, other):
    exact = POOLED.astype(np.float64)
    sides = (
        {"tensors": {"pooling": POOLED}},
        {"tensors": {} if other is None else {"pooling": other}},
    )
    result = judged(memory, sides, tensors(exact, exact))
    assert (result.kind, result.rule) == ("diverged", "probe")
    assert result.reason.startswith("mine pooling: ")


def test_rounding_of_a_probe_hides_no_undecided_fact(memory):
    exact = POOLED.astype(np.float64)
    sides = [
        {"tensors": {"pooling.a": array}, "facts": {"pooling.n": n}}
        for array, n in ((POOLED, 1), (OTHER, 2))
    ]
    both = [{"tensors": {"pooling.a": exact}, "facts": {"pooling.n": 1}}] * 2
    assert judged(memory, sides, both).kind == "undecided"


def test_those_that_inform_have_steps_of_their_own(memory):
    captures = [
        probed(memory, stack, {"pooling": array}, verdict=False)
        for stack, array in (("4.48", POOLED), ("5.x", OTHER))
    ]
    exact = POOLED.astype(np.float64)
    files = tuple(file(memory, stack, {"pooling": exact}) for stack in ("4.48", "5.x"))
    (step,) = informing_steps(*captures, memory, files)
    assert (step.signal, step.kind) == ("mine", "rounding")
    assert informing_steps(*captures, memory, None) == ()
    signals = compare(*captures, memory)
    steps = ladder(*captures, signals, (), memory, files).steps
    assert "mine" not in {step.signal for step in steps}


def test_one_that_does_not_repeat_itself_has_no_step(memory):
    captures = [
        probed(memory, stack, {"pooling": array}, repeats=False, verdict=False)
        for stack, array in (("4.48", POOLED), ("5.x", OTHER))
    ]
    files = tuple(file(memory, stack, {"pooling": POOLED}) for stack in ("4.48", "5.x"))
    assert informing_steps(*captures, memory, files) == ()


def test_a_job_runs_only_the_files_that_differ(memory):
    sides = [
        probed(memory, stack, {"pooling": array})
        for stack, array in (("4.48", POOLED), ("5.x", OTHER))
    ]
    reference, candidate = asks(*sides, compare(*sides, memory), memory)
    assert reference.probes == candidate.probes == ("mine",)
    same = [probed(memory, stack, {"pooling": POOLED}) for stack in ("4.48", "5.x")]
    without, _ = asks(*same, compare(*same, memory), memory)
    assert without.probes == ()
    assert [ask.probes for ask in merged([reference, without])] == [("mine",), ("mine",)]

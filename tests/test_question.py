"""What is traced of a pair that differs, and of which pairs."""

import asyncio

from samebits import diagnose
from samebits.tracing.question import causes_of, questions, with_cause
from samebits.words import Verdict
from tests.builders import Memory, decoded, forward, sound, values


def pair(memory, *, verdict=Verdict.DIVERGED, **changed):
    """Return the runs of a cell, its reference's, and its result, judged as told."""
    there = (sound(memory), sound(memory, run="b"))
    here = (sound(memory, "5.x", **changed), sound(memory, "5.x", run="b", **changed))
    found = diagnose.result(here[0].cell, here, there, memory)
    return {there[0].cell: there, here[0].cell: here}, found.model_copy(update={"judged": verdict})


def moved(memory):
    return {"short": forward(memory, hidden=(), logits=values(1, 6, 8, seed=99))}


def asked(runs, result, traced=None):
    """Return the cells that are asked for."""
    seen = {}

    async def ask(wanted):
        seen.update(wanted)
        return dict.fromkeys(wanted, "because")

    told = asyncio.run(causes_of([result], runs, ask, traced))
    found = with_cause(result, told.get(result.cell))
    return seen, found


def test_a_forward_that_differs_is_traced_on_its_prompt():
    memory = Memory()
    runs, result = pair(memory, forward=moved(memory))
    (question,) = questions(result, runs[result.reference][0])
    assert (question.prompt, question.what, question.forced) == ("short", "forward", {})


def test_a_decode_that_differs_is_traced_with_the_references_tokens():
    memory = Memory()
    runs, result = pair(memory, greedy={"short": decoded(memory, 3, 1, 5)})
    (question,) = questions(result, runs[result.reference][0])
    assert (question.prompt, question.what) == ("short", "decode")
    reference = runs[result.reference][0].signals.greedy["short"].ids
    assert question.forced["short"] == reference[: len(question.forced["short"])]


def test_a_pair_of_the_same_bits_is_not_traced():
    runs, result = pair(Memory(), verdict=Verdict.IDENTICAL)
    assert questions(result, runs[result.reference][0]) == []


def test_only_the_cells_that_may_be_are_traced():
    memory = Memory()
    runs, result = pair(memory, forward=moved(memory))
    seen, found = asked(runs, result)
    assert list(seen) == [result.cell]
    assert any("because" in note for note in found.notes)
    seen, found = asked(runs, result, {result.cell})
    assert list(seen) == [result.cell]
    seen, found = asked(runs, result, set())
    assert seen == {}
    assert found.notes == result.notes


def test_promoted_traces_are_asked_for_only_where_it_is_no_rounding():
    memory = Memory()
    for verdict, beyond in ((Verdict.DIVERGED, True), (Verdict.ROUNDING, False)):
        runs, result = pair(memory, verdict=verdict, forward=moved(memory))
        (told,) = asked(runs, result)[0].values()
        assert told.beyond_rounding == beyond

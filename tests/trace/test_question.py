"""What is traced of a pair that differs, and of which pairs."""

import asyncio

from samebits.diagnose import verdict as diagnose_verdict
from samebits.records.ids import Verdict
from samebits.records.trace import Cause, Side
from samebits.trace.question import causes_of, questions, with_cause
from tests.support.builders import (
    Memory,
    buffer,
    decoded,
    forward,
    frequencies,
    sound,
    values,
    weight,
    weights_signal,
)


def pair(memory, *, verdict=Verdict.DIVERGED, **changed):
    """Return the runs of a cell, its reference's, and its result, judged as told."""
    there = (sound(memory), sound(memory, run="b"))
    here = (sound(memory, "5.x", **changed), sound(memory, "5.x", run="b", **changed))
    found = diagnose_verdict.result(here[0].cell, here, there, memory)
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
    assert question.forced["short"] == reference
    assert question.steps == 3  # the third token is another one, of other logits
    assert question.to_its_end().steps == len(reference)


def test_a_decode_whose_values_are_not_kept_is_traced_up_to_where_tokens_part():
    memory = Memory()
    kept = decoded(memory, 3, 2, 5)
    runs, result = pair(memory, greedy={"short": kept.model_copy(update={"logits": None})})
    (question,) = questions(result, runs[result.reference][0])
    assert question.what == "decode"
    assert question.steps == 2


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


def stored_pair(memory, **changed):
    return pair(memory, verdict=Verdict.ROUNDING, **changed)


def test_a_cell_whose_stored_numbers_alone_differ_has_a_cause_without_a_trace():
    memory = Memory()
    other = {"model.mask": buffer(memory, values(3, 3, seed=99))}
    runs, result = stored_pair(memory, buffers=other)
    seen, found = asked(runs, result)
    assert seen == {}
    assert (found.cause.kind, found.cause.candidate.tensor) == ("buffer", "model.mask")
    assert found.cause.what == "load"
    assert "9 of 9 elements differ" in found.cause.evidence[0]
    assert "nothing that the model computes from it differs" in found.cause.evidence[1]
    other = {"model.rotary_emb.inv_freq": frequencies(memory, values(2, seed=99))}
    runs, result = stored_pair(memory, inv_freq=other)
    assert asked(runs, result)[1].cause.kind == "buffer"


def test_a_stored_tensor_that_differs_is_named_where_a_trace_says_nothing():
    memory = Memory()
    told = {"model.norm.weight": weight(memory, values(4, seed=99), "norm")}
    runs, result = pair(memory, forward=moved(memory), weights=weights_signal(told))
    seen, found = asked(runs, result)
    assert list(seen) == [result.cell]
    assert found.cause.kind == "weight"
    assert "a trace says no more: because" in found.cause.evidence


def test_a_cell_that_is_not_to_be_traced_and_one_of_the_same_bits_have_no_cause():
    memory = Memory()
    other = {"model.mask": buffer(memory, values(3, 3, seed=99))}
    runs, result = stored_pair(memory, buffers=other)
    assert asked(runs, result, set())[1].cause is None
    runs, result = pair(memory, verdict=Verdict.IDENTICAL)
    assert asked(runs, result)[1].cause is None


def test_a_trace_calls_a_tensor_what_the_model_has_it_as():
    memory = Memory()
    told = {"model.A_log": weight(memory, values(4, seed=99), "A_log")}
    runs, result = pair(memory, forward=moved(memory), weights=weights_signal(told))
    side = Side(stack="5.x", tensor="model.A_log")
    cause = Cause(
        kind="buffer", headline="", prompt="short", what="forward", sink="layer", candidate=side
    )

    async def ask(wanted):
        return dict.fromkeys(wanted, cause.model_copy(update={"beyond": cause}))

    (found,) = asyncio.run(causes_of([result], runs, ask)).values()
    assert found.kind == found.beyond.kind == "weight"


def test_a_cause_of_an_earlier_run_is_not_asked_for_again():
    memory = Memory()
    runs, result = pair(memory, forward=moved(memory))
    known = {result.cell: "said before"}
    assert asyncio.run(causes_of([result], runs, None, None, known)) == known

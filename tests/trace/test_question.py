"""Tests of samebits.trace.question: which pairs are traced, and which causes they get."""

import asyncio

import numpy as np
import pytest

from samebits.diagnose import verdict as diagnosis
from samebits.records.ids import Verdict
from samebits.records.trace import Side
from samebits.trace.question import causes_of, questions, same_weights, with_cause
from samebits.trace.stored import with_held
from tests.support.builders import (
    Memory,
    buffer,
    capture,
    cause_in,
    cell_id,
    cell_result,
    decoded,
    forward,
    frequencies,
    sound,
    values,
    weight,
    weights_signal,
)


def pair(memory, *, verdict=Verdict.DIVERGED, **changed):
    """Return the runs of a cell and of its reference, and its result with this verdict."""
    reference_runs = (sound(memory), sound(memory, run="b"))
    candidate_runs = (sound(memory, "5.x", **changed), sound(memory, "5.x", run="b", **changed))
    result = diagnosis.result(candidate_runs[0].cell, candidate_runs, reference_runs, memory)
    return {
        reference_runs[0].cell: reference_runs,
        candidate_runs[0].cell: candidate_runs,
    }, result.model_copy(update={"judged": verdict})


def moved(memory):
    return {"short": forward(memory, hidden=(), logits=values(1, 6, 8, seed=99))}


def requested(runs, result, traced=None):
    """Return the requests for traces, and the result with its cause."""
    requests = {}

    async def ask(wanted):
        requests.update(wanted)
        return dict.fromkeys(wanted, "because")

    causes = asyncio.run(causes_of([result], runs, ask, traced))
    return requests, with_cause(result, causes.get(result.cell))


def test_a_forward_that_differs_is_traced_on_its_prompt(memory):
    runs, result = pair(memory, forward=moved(memory))
    (question,) = questions(result, runs[result.reference][0])
    assert (question.prompt, question.what, question.forced) == ("short", "forward", {})


def test_a_decode_that_differs_is_traced_with_the_references_tokens(memory):
    runs, result = pair(memory, greedy={"short": decoded(memory, 3, 1, 5)})
    (question,) = questions(result, runs[result.reference][0])
    assert (question.prompt, question.what) == ("short", "decode")
    reference = runs[result.reference][0].signals.greedy["short"].ids
    assert question.forced["short"] == reference
    assert question.steps == 3  # the third token is another one, of other logits
    assert question.to_its_end().steps == len(reference)


def test_a_decode_whose_values_are_not_kept_is_traced_up_to_where_tokens_part(memory):
    kept = decoded(memory, 3, 2, 5)
    runs, result = pair(memory, greedy={"short": kept.model_copy(update={"logits": None})})
    (question,) = questions(result, runs[result.reference][0])
    assert question.what == "decode"
    assert question.steps == 2


def test_a_pair_of_the_same_bits_is_not_traced():
    runs, result = pair(Memory(), verdict=Verdict.IDENTICAL)
    assert questions(result, runs[result.reference][0]) == []


def test_only_the_cells_that_may_be_are_traced(memory):
    runs, result = pair(memory, forward=moved(memory))
    requests, with_note = requested(runs, result)
    assert list(requests) == [result.cell]
    assert any("because" in note for note in with_note.notes)
    requests, with_note = requested(runs, result, {result.cell})
    assert list(requests) == [result.cell]
    requests, with_note = requested(runs, result, set())
    assert requests == {}
    assert with_note.notes == result.notes


def test_promoted_traces_are_asked_for_only_where_it_is_no_rounding(memory):
    for verdict, beyond in ((Verdict.DIVERGED, True), (Verdict.ROUNDING, False)):
        runs, result = pair(memory, verdict=verdict, forward=moved(memory))
        (request,) = requested(runs, result)[0].values()
        assert request.beyond_rounding == beyond


def stored_pair(memory, **changed):
    return pair(memory, verdict=Verdict.ROUNDING, **changed)


def test_a_cell_whose_stored_numbers_alone_differ_has_a_cause_without_a_trace(memory):
    changed = {"model.mask": buffer(memory, values(3, 3, seed=99))}
    runs, result = stored_pair(memory, buffers=changed)
    requests, traced_result = requested(runs, result)
    assert requests == {}
    assert (traced_result.cause.kind, traced_result.cause.candidate.tensor) == (
        "buffer",
        "model.mask",
    )
    assert traced_result.cause.what == "load"
    assert "9 of 9 elements differ" in traced_result.cause.evidence[0]
    assert "nothing that this run computes from it differs" in traced_result.cause.evidence[1]
    changed = {"model.rotary_emb.inv_freq": frequencies(memory, values(2, seed=99))}
    runs, result = stored_pair(memory, inv_freq=changed)
    assert requested(runs, result)[1].cause.kind == "buffer"


def test_a_stored_tensor_that_differs_is_named_where_a_trace_says_nothing(memory):
    tensors = {"model.norm.weight": weight(memory, values(4, seed=99), "norm")}
    runs, result = pair(memory, forward=moved(memory), weights=weights_signal(tensors))
    requests, traced_result = requested(runs, result)
    assert list(requests) == [result.cell]
    assert traced_result.cause.kind == "weight"
    assert "no trace shows more: because" in traced_result.cause.evidence


def test_a_cell_that_is_not_to_be_traced_and_one_of_the_same_bits_have_no_cause(memory):
    changed = {"model.mask": buffer(memory, values(3, 3, seed=99))}
    runs, result = stored_pair(memory, buffers=changed)
    assert requested(runs, result, set())[1].cause is None
    runs, result = pair(memory, verdict=Verdict.IDENTICAL)
    assert requested(runs, result)[1].cause is None


def test_a_trace_calls_a_tensor_what_the_model_has_it_as(memory):
    tensors = {"model.A_log": weight(memory, values(4, seed=99), "A_log")}
    runs, result = pair(memory, forward=moved(memory), weights=weights_signal(tensors))
    cause = cause_in(Side(stack="5.x", tensor="model.A_log"), kind="buffer")

    async def ask(wanted):
        return dict.fromkeys(wanted, cause.model_copy(update={"beyond": cause}))

    (named_cause,) = asyncio.run(causes_of([result], runs, ask)).values()
    assert named_cause.kind == named_cause.beyond.kind == "weight"


@pytest.mark.parametrize(
    ("held", "unread"),
    [
        ({"head.bias": ("bias",)}, ("head.decoder.bias",)),
        (
            {"head.biases": ("bias", "more")},
            (),
        ),  # a part of a larger one, which operations may take
        ({}, ()),
    ],
)
def test_a_parameter_is_unread_only_on_a_side_that_holds_it_as_such(memory, held, unread):
    bias = values(4, seed=99)
    own = weight(memory, bias, "bias", aliases=("head.decoder.bias",))
    both = {"bias": bias, "more": values(4, seed=98)}
    tensors = {
        name: weight(memory, np.concatenate([both[part] for part in parts]), *parts)
        for name, parts in held.items()
    }
    reference = sound(memory, weights=weights_signal({"head.bias": own}))
    candidate = sound(memory, "5.x", weights=weights_signal(tensors))
    cause = cause_in(Side(stack="5.x", unread=("head.decoder.bias",)), reference=Side(stack="4.57"))
    cause = with_held(cause.model_copy(update={"beyond": cause}), reference, candidate)
    assert cause.candidate.unread == cause.beyond.candidate.unread == unread


def test_a_cause_of_an_earlier_run_is_not_asked_for_again(memory):
    runs, result = pair(memory, forward=moved(memory))
    known = {result.cell: "said before"}
    assert asyncio.run(causes_of([result], runs, None, None, known)) == known


def test_a_head_that_one_side_alone_ties_holds_no_numbers_of_both_sides(memory):
    embed = weight(memory, values(8, 4), "embed")
    head = weight(memory, values(8, 4, seed=1), "lm_head.weight")
    tied = embed.model_copy(update={"aliases": ("lm_head.weight",)})
    reference = capture("4.48", weights=weights_signal({"embed": tied}))
    candidate = capture("5.2", weights=weights_signal({"embed": embed, "lm_head.weight": head}))
    result = cell_result(cell_id("5.2"))
    assert same_weights(result, reference, candidate) == {"embed"}
    assert same_weights(result, reference, reference) == {"embed", "lm_head.weight"}

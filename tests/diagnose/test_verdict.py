"""Every verdict and every rule, and beside each the clean case that must not be accused."""

import math

import numpy as np
import pytest

from samebits.diagnose.verdict import apply_expected, choose_reference, exit_code, result
from samebits.ladder.verdicts import with_ladder
from samebits.matrix.spec import Expected
from samebits.records.capture import Failure, FormulaFacts, Skip
from samebits.records.ids import Verdict
from samebits.records.ladder import Ladder
from samebits.records.provenance import IntegritySignal
from samebits.records.report import ExpectedReport, StackReport
from tests.support.builders import (
    attention,
    buffer,
    call,
    capture,
    cell_id,
    decoded,
    forward,
    frequencies,
    hidden_of,
    layers,
    logits_of,
    nudged,
    sound,
    sound_signals,
    step_logits,
    tokenizer,
    values,
    weight,
    weights_signal,
)


def runs(memory, stack="5.0", second=None, **changed):
    """Return both runs of a cell; ``second`` changes the other one alone."""
    first = sound(memory, stack, **changed)
    return first, sound(memory, stack, run="b", **(changed | (second or {})))


def verdict_on(memory, *candidate, reference=None, **more):
    reference = reference or runs(memory, "4.48")
    return result(cell_id("5.0"), candidate, reference, memory, **more)


def between(memory, reference, candidate):
    """Return the verdict on a cell whose forwards alone differ from those of its reference."""
    return verdict_on(
        memory,
        *runs(memory, forward=candidate),
        reference=runs(memory, "4.48", forward=reference),
    )


def nudged_layer(memory, index, *place):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    arrays[index] = nudged(arrays[index], *place, by=0)
    return hidden_of(memory, *arrays)


def moved(memory):
    """Return forwards whose logits differ by exactly 0.5 in one place."""
    logits = values(1, 6, 8, seed=16)
    logits[0, 2, 3] = 1.0
    other = logits.copy()
    other[0, 2, 3] = 1.5
    return logits_of(memory, logits), logits_of(memory, other)


# verdicts


def test_identical(memory):
    cell_result = verdict_on(memory, *runs(memory), reproduce="samebits run x")
    assert (cell_result.verdict, cell_result.judged, cell_result.figure) == (
        Verdict.IDENTICAL,
        cell_result.verdict,
        "",
    )
    assert cell_result.headline == (
        "the same bytes: inputs, weights, buffers, inv_freq, hidden_states, logits, decode, greedy"
    )
    assert (cell_result.cell, cell_result.reference) == (cell_id("5.0"), cell_id("4.48"))
    assert cell_result.reproduce == "samebits run x"
    assert cell_result.steps == ()
    assert (cell_result.first, cell_result.splits, cell_result.notes, cell_result.changes) == (
        None,
        (),
        (),
        {},
    )


def without_model(stack, kind="LlamaTokenizerFast"):
    """Return both runs of a folder with a tokenizer alone."""
    skips = dict.fromkeys(("weights", "buffers", "inv_freq", "forward", "greedy"), "no model")
    return tuple(
        capture(stack, run=run, skips=skips, tokenizer=tokenizer(class_name=kind)) for run in "ab"
    )


def test_a_folder_without_a_model_is_not_observed_whatever_its_tokenizer_does(memory):
    reference = without_model("4.48")
    for kind in ("LlamaTokenizerFast", "TokenizersBackend"):
        found = verdict_on(memory, *without_model("5.0", kind), reference=reference)
        assert found.verdict is Verdict.NOT_OBSERVED
        assert "tokenizer" in found.headline
        assert not found.steps
        assert bool(found.changes) is (kind == "TokenizersBackend")
    itself = result(cell_id("4.48"), reference, reference, memory)
    assert itself.verdict is Verdict.REFERENCE
    # a model without a reason is no folder without one
    bare = capture("5.0"), capture("5.0", run="b")
    assert verdict_on(memory, *bare).verdict is Verdict.FAILED


def test_the_reference_itself(memory):
    reference = runs(memory, "4.48")
    cell_result = result(cell_id("4.48"), reference, reference, memory)
    assert (cell_result.verdict, cell_result.signals) == (Verdict.REFERENCE, ())


def test_differs(memory):
    one, other = moved(memory)
    cell_result = between(memory, one, other)
    assert (cell_result.verdict, cell_result.figure) == (Verdict.UNDECIDED, "logits 0.5")
    assert cell_result.steps
    assert cell_result.first.signal == "logits"
    assert cell_result.headline == cell_result.first.what
    assert cell_result.headline.startswith("logits: prompt short: 1 of 48 elements, max abs 0.5 (")


@pytest.mark.parametrize("names", [("a", "b"), ("a",)], ids=["both", "one"])
def test_failed(memory, names):
    cell_result = verdict_on(memory, *(capture("5.0", run=run, status="failed") for run in names))
    assert cell_result.verdict == Verdict.FAILED
    assert cell_result.headline == "failed in phase load: ImportError: no such name"
    assert cell_result.failure.phase == "load"


def test_one_run_of_two_that_failed_is_unstable(memory):
    cell_result = verdict_on(memory, sound(memory, "5.0"), capture("5.0", run="b", status="failed"))
    assert cell_result.verdict == Verdict.UNSTABLE
    assert cell_result.failure.type == "ImportError"
    assert cell_result.unstable == ("status: complete in run a, failed in run b",)


@pytest.mark.parametrize("n", [0, 1])
def test_a_run_that_is_missing_is_no_pass(memory, n):
    assert verdict_on(memory, *runs(memory)[:n]).verdict == Verdict.FAILED


def test_absent(memory):
    absent = [capture("5.0", run=run, status="absent") for run in "ab"]
    cell_result = verdict_on(memory, *absent)
    assert (cell_result.verdict, cell_result.absent) == (Verdict.ABSENT, "llama is not known here")
    mixed = verdict_on(memory, absent[0], sound(memory, "5.0", run="b"))
    assert mixed.verdict == Verdict.UNSTABLE


def test_unstable(memory):
    second = {"buffers": {"model.mask": buffer(memory, values(3, 3, seed=70))}}
    cell_result = verdict_on(memory, *runs(memory, second=second))
    assert (cell_result.verdict, cell_result.unstable) == (
        Verdict.UNSTABLE,
        ("buffers model.mask",),
    )
    assert "buffers model.mask" in cell_result.headline


def test_memory_that_nothing_wrote_is_unstable_even_if_it_looks_alike(memory):
    unwritten = {"model.mask": buffer(memory, values(3, 3, seed=14), unwritten=True)}
    cell_result = verdict_on(memory, *runs(memory, buffers=unwritten))
    assert cell_result.verdict == Verdict.UNSTABLE
    assert cell_result.unstable == ("buffers model.mask (never written)",)


def lazy(memory, seed, *, replaced=True):
    """Return a table that the load leaves unwritten, as a forward makes it before it reads it."""
    table = values(3, 3, seed=seed)
    return {"model.table": buffer(memory, table, unwritten=True, replaced=replaced)}


def test_a_table_that_forward_makes_before_it_reads_it_is_no_unwritten_memory(memory):
    """Old rotary embeddings keep a table of the longest text so far, and make it at the first forward."""
    second = {"buffers": lazy(memory, 71)}
    same = verdict_on(memory, *runs(memory, buffers=lazy(memory, 70), second=second))
    assert (same.verdict, same.unstable) == (Verdict.IDENTICAL, ())


@pytest.mark.parametrize("where", ["not replaced", "in one run", "read before"])
def test_a_table_that_is_read_first_or_stays_unwritten_is_unstable(memory, where):
    second = {"buffers": lazy(memory, 71, replaced=where == "read before")}
    if where == "read before":
        second["forward"] = padded(memory, (1, 0, 0))
    first = {
        "forward": padded(memory),
        "buffers": lazy(memory, 70, replaced=where != "not replaced"),
    }
    found = verdict_on(memory, *runs(memory, **first, second=second))
    assert found.verdict == Verdict.UNSTABLE
    assert any("model.table" in each for each in found.unstable)


def padded(memory, place=None):
    logits = values(2, 6, 8, seed=3)
    logits = logits if place is None else nudged(logits, *place)
    facts = forward(
        memory,
        ids=np.arange(12).reshape(2, 6),
        hidden=layers(memory, values(2, 6, 4)),
        logits=logits,
        real_rows=((2, 6), (0, 6)),
    )
    return {"short": facts}


def test_an_unstable_pad_row_is_unstable_and_named_as_one(memory):
    cell_result = verdict_on(
        memory,
        *runs(memory, forward=padded(memory), second={"forward": padded(memory, (0, 0, 0))}),
    )
    assert (cell_result.verdict, cell_result.unstable) == (
        Verdict.UNSTABLE,
        ("logits short (pad rows)",),
    )


def test_a_pad_row_that_differs_between_versions_is_identical_with_a_note(memory):
    cell_result = between(memory, padded(memory), padded(memory, (0, 0, 0)))
    assert cell_result.verdict == Verdict.IDENTICAL
    assert cell_result.notes == (
        "logits: padding rows differ, which does not affect the verdict: short",
    )
    real = between(memory, padded(memory), padded(memory, (1, 0, 0)))
    assert real.verdict == Verdict.UNDECIDED


@pytest.mark.parametrize("signal", ["weights", "buffers", "inv_freq", "greedy", "forward"])
def test_a_signal_that_is_gone_fails_unless_a_reason_is_given(memory, signal):
    assert verdict_on(memory, *runs(memory, **{signal: None})).verdict == Verdict.FAILED
    told = verdict_on(memory, *runs(memory, skips={signal: "not asked for"}, **{signal: None}))
    assert told.compared == Verdict.IDENTICAL
    assert told.verdict == ("not observed" if signal == "forward" else "identical")
    assert any("not asked for" in note for note in told.notes)


def test_a_forward_that_raises_on_both_sides_is_not_observed(memory):
    raised = Failure(phase="forward short", type="ValueError", message="too many", traceback="")

    def raising(stack="5.0"):
        pair = runs(memory, stack, forward=None, greedy=None)
        return [run.model_copy(update={"failures": (raised,)}) for run in pair]

    cell_result = verdict_on(memory, *raising(), reference=raising("4.48"))
    assert (cell_result.verdict, cell_result.rest) == (Verdict.NOT_OBSERVED, Verdict.IDENTICAL)
    assert "too many" in cell_result.headline
    alone = verdict_on(memory, *raising())
    assert (alone.verdict, alone.rest) == (Verdict.FAILED, Verdict.IDENTICAL)
    entry = expected(verdict="failed", stack=("5.0",))
    (covered,), _ = apply_expected([alone], [entry], [alone.cell], "4.48")
    assert covered.verdict == Verdict.EXPECTED


def test_a_tokenizer_that_does_not_load_fails_and_the_model_is_compared(memory):
    message = "Tokenizer class TokenizersBackend does not exist"
    raised = Failure(phase="tokenizer", type="ValueError", message=message, traceback="")
    pair = [run.model_copy(update={"failures": (raised,)}) for run in runs(memory)]
    found = verdict_on(memory, *pair, reference=runs(memory, "4.48"))
    assert (found.verdict, found.rest) == (Verdict.FAILED, Verdict.IDENTICAL)
    assert found.signals
    assert verdict_on(memory, *runs(memory), reference=runs(memory, "4.48")).verdict == "identical"


NOT_FED = {"why": "inputs", "reason": "the config has no vocab_size to choose token ids from"}


def unfed(memory, stack):
    """Return both runs of a model for which no inputs could be made, prompt by prompt."""
    skips = [Skip(what=f"{phase} short", **NOT_FED) for phase in ("forward", "greedy")]
    return tuple(
        sound(memory, stack, run=run, forward={}, greedy={}).model_copy(
            update={"skips": tuple(skips)}
        )
        for run in "ab"
    )


def test_a_model_that_could_not_be_fed_is_not_observed_and_has_not_failed(memory):
    cell_result = result(cell_id("5.0"), unfed(memory, "5.0"), unfed(memory, "4.48"), memory)
    assert (cell_result.verdict, cell_result.rest) == (Verdict.NOT_OBSERVED, Verdict.IDENTICAL)
    assert cell_result.headline.endswith(f"no forward: {NOT_FED['reason']}")
    decode = next(s for s in cell_result.signals if s.signal == "decode")
    assert (decode.excused, decode.note) == (
        True,
        f"not observed on either side: {NOT_FED['reason']}",
    )


def test_a_decode_that_no_reason_explains_fails_the_cell(memory):
    sides = (runs(memory, stack, greedy={}) for stack in ("5.0", "4.48"))
    cell_result = result(cell_id("5.0"), *sides, memory)
    assert cell_result.verdict == Verdict.FAILED
    assert cell_result.headline.startswith("decode could not be compared: ")


def test_a_release_that_works_has_not_failed_because_the_reference_raises(memory):
    raised = Failure(phase="greedy short", type="ValueError", message="no", traceback="")
    reference = tuple(
        side.model_copy(update={"failures": (raised,)}) for side in runs(memory, "4.48", greedy={})
    )
    cell_result = result(cell_id("5.0"), runs(memory), reference, memory)
    assert cell_result.verdict == Verdict.IDENTICAL
    assert result(cell_id("4.48"), reference, reference, memory).verdict == Verdict.FAILED


def test_nothing_compared_is_never_identical_whatever_the_reasons(memory):
    skips = dict.fromkeys(("weights", "buffers", "inv_freq", "forward", "greedy"), "not asked for")
    empty = [capture("5.0", run=run, skips=skips) for run in "ab"]
    cell_result = verdict_on(memory, *empty)
    assert cell_result.verdict == Verdict.FAILED
    skips.pop("buffers")
    some = [
        capture("5.0", run=run, skips=skips, buffers=sound_signals(memory)["buffers"])
        for run in "ab"
    ]
    assert verdict_on(memory, *some).verdict == Verdict.FAILED


def test_padding_that_could_not_be_judged_is_no_pass_until_the_values_are_there(memory):
    hidden = padded(memory, (0, 0, 0))
    gone = hidden["short"].logits.hash
    array = memory.arrays.pop(gone)
    sides = runs(memory, forward=hidden), runs(memory, "4.48", forward=padded(memory))
    cell_result = result(cell_id("5.0"), *sides, memory)
    assert cell_result.verdict == Verdict.FAILED
    assert cell_result.headline.startswith("logits could not be compared: short: ")
    memory.arrays[gone] = array
    assert result(cell_id("5.0"), *sides, memory).verdict == Verdict.IDENTICAL


def test_without_a_reference_nothing_is_identical(memory):
    cell_result = result(cell_id("5.0"), runs(memory), None, memory)
    assert (cell_result.verdict, cell_result.reference) == (Verdict.FAILED, None)
    failed = result(cell_id("5.0"), (capture("5.0", status="absent"),) * 2, None, memory)
    assert failed.verdict == Verdict.ABSENT


def test_an_identical_cell_without_greedy_says_nothing_of_tokens(memory):
    cell_result = verdict_on(memory, *runs(memory, greedy=None, skips={"greedy": "not asked for"}))
    assert cell_result.verdict == Verdict.IDENTICAL
    assert cell_result.headline.endswith(", logits")


# the reference


def test_the_matrix_reference_is_taken_if_it_is_sound(memory):
    cells = {cell_id(s): runs(memory, s) for s in ("4.40", "4.48", "5.0")}
    assert choose_reference(cells, "4.48") == cell_id("4.48")
    assert choose_reference(cells, "5.0") == cell_id("5.0")


def test_else_the_oldest_that_is(memory):
    unstable = runs(memory, "4.40", second={"greedy": {"short": decoded(memory, 7)}})
    cells = {
        cell_id("4.40"): unstable,
        cell_id("4.48"): tuple(capture("4.48", run=run, status="failed") for run in "ab"),
        cell_id("4.57"): runs(memory, "4.57"),
        cell_id("5.0"): runs(memory, "5.0"),
    }
    assert choose_reference(cells, "4.48") == cell_id("4.57")
    assert choose_reference(dict(list(cells.items())[:2]), "4.48") is None
    bare = {cell_id(stack): without_model(stack) for stack in ("4.48", "5.0")}
    assert choose_reference(bare, "4.48") == cell_id("4.48")


# the first difference


def test_the_first_layer_is_named_with_the_figure(memory):
    cell_result = verdict_on(memory, *runs(memory, forward=nudged_layer(memory, 2, 0, 1, 2)))
    assert cell_result.first.signal == "hidden_states"
    assert cell_result.first.item == "short · layer 2 (model.layers.1)"
    assert cell_result.headline.startswith(
        "hidden_states: layer 2 (model.layers.1) of prompt short is the first that differs: "
        "1 of 24 elements, max abs "
    )
    assert cell_result.headline.endswith(" (1 ULP)")


def test_the_earliest_layer_over_all_prompts_is_the_first(memory):
    facts = nudged_layer(memory, 2, 0, 1, 2)["short"]
    early = nudged_layer(memory, 1, 0, 1, 2)["short"]
    plain = sound_signals(memory)["forward"]["short"]
    cell_result = between(memory, {"a": plain, "b": plain}, {"a": facts, "b": early})
    assert cell_result.first.item == "b · layer 1 (model.layers.0)"
    first = nudged_layer(memory, 0, 0, 1, 2)["short"]
    cell_result = between(memory, {"a": plain, "b": plain}, {"a": early, "b": first})
    assert cell_result.first.item == "b · layer 0 (embeddings)"


def test_the_first_prompt_is_named_and_the_others_are_counted(memory):
    one, other = (facts["short"] for facts in moved(memory))
    for prompts, end in (("a", ""), ("ab", " (and 1 more)"), ("abc", " (and 2 more)")):
        sides = (dict.fromkeys(prompts, facts) for facts in (one, other))
        headline = between(memory, *sides).headline
        assert headline.startswith("logits: prompt a: 1 of 48 elements")
        assert headline.partition(" ULP)")[2] == end


def test_a_kernel_change_is_first_only_where_its_layer_is(memory):
    kernel = attention(call(0), call(1, is_causal=False, mask="bool[1, 1, 6, 6]"))
    cell_result = verdict_on(
        memory, *runs(memory, forward=nudged_layer(memory, 2, 0, 1, 2), attention=kernel)
    )
    assert cell_result.first.signal == "attention.kernel"
    assert cell_result.first.item == "short · model.layers.1.self_attn"
    assert "(masking no mask, causal → a mask)" in cell_result.headline
    elsewhere = verdict_on(
        memory, *runs(memory, forward=nudged_layer(memory, 1, 0, 1, 2), attention=kernel)
    )
    assert elsewhere.first.signal == "hidden_states"


def test_a_call_that_is_only_spelt_otherwise_is_not_named_as_the_first_difference(memory):
    kernel = attention(call(0), call(1, enable_gqa=True, scale=None))
    cell_result = verdict_on(
        memory, *runs(memory, forward=nudged_layer(memory, 2, 0, 1, 2), attention=kernel)
    )
    assert cell_result.first.signal == "hidden_states"
    assert list(cell_result.changes) == ["attention.kernel"]


def test_a_kernel_change_alone_is_no_difference(memory):
    kernel = attention(call(0, enable_gqa=True), call(1, enable_gqa=True))
    cell_result = verdict_on(memory, *runs(memory, attention=kernel))
    assert cell_result.verdict == Verdict.IDENTICAL
    assert list(cell_result.changes) == ["attention.kernel"]


def test_what_comes_earlier_in_the_flow_is_first(memory):
    tensors = sound_signals(memory)["weights"].tensors
    lost = weights_signal(
        tensors | {"model.norm.weight": weight(memory, values(4, seed=90), origin="reinitialised")}
    )
    kernel = attention(call(0, enable_gqa=True), call(1, enable_gqa=True))
    cell_result = verdict_on(
        memory,
        *runs(memory, weights=lost, forward=nudged_layer(memory, 1, 0, 0, 0), attention=kernel),
    )
    assert cell_result.first.signal == "weights"
    assert cell_result.headline.startswith("weights: model.norm.weight: loaded in the reference")
    assert any("reinitialised" in note for note in cell_result.notes)
    cell_result = verdict_on(
        memory,
        *runs(memory, inv_freq={"rotary_emb.inv_freq": frequencies(memory, values(2, seed=5))}),
    )
    assert (cell_result.first.signal, cell_result.figure) == ("inv_freq", "inv_freq 1 of 1")


def test_other_inputs_are_first(memory):
    other = forward(memory, ids=[[5, 4, 3, 2, 1, 0]], logits=values(1, 6, 8, seed=50))
    tokens = {"short": decoded(memory, 9)}  # of other inputs, so they split nowhere
    cell_result = verdict_on(memory, *runs(memory, forward={"short": other}, greedy=tokens))
    assert cell_result.verdict == Verdict.UNDECIDED
    assert cell_result.headline.startswith("inputs: input_ids of prompt short: 6 of 6 elements")
    assert (cell_result.figure, cell_result.splits) == ("inputs 1 of 1", ())


# figures


def from_one_row(memory, *ids):
    """Return other tokens that were chosen from the usual logits, as another processor may."""
    return {"short": decoded(memory, *ids, logits=step_logits(3, 1, 4))}


def test_tokens_are_the_figure_if_logits_agree(memory):
    cell_result = verdict_on(memory, *runs(memory, greedy=from_one_row(memory, 3, 1, 5)))
    assert cell_result.figure == "tokens step 2"
    (split,) = cell_result.splits
    assert (split.prompt, split.step) == ("short", 2)
    assert (split.reference[0], split.candidate[0]) == ((4, 1.75), (5, 1.75))
    assert cell_result.headline == (
        "greedy: prompt short: step 2: token 4 in the reference, token 5 in the candidate"
    )


def test_the_logits_that_the_tokens_were_chosen_from_come_before_them(memory):
    cell_result = verdict_on(memory, *runs(memory, greedy={"short": decoded(memory, 3, 1, 5)}))
    assert (cell_result.verdict, cell_result.figure) == (Verdict.UNDECIDED, "tokens step 2")
    assert (cell_result.first.signal, cell_result.first.item) == ("decode", "short")
    assert cell_result.headline.startswith("decode: prompt short: 3 of 48 elements, max abs ")
    assert cell_result.headline.endswith("; up to step 2, where the tokens differ")


def test_a_split_at_the_end_has_one_side(memory):
    cell_result = verdict_on(memory, *runs(memory, greedy={"short": decoded(memory, 3, 1)}))
    assert cell_result.splits[0].candidate is None
    assert cell_result.splits[0].reference == ((4, 1.75), (5, 0.75))
    assert (
        cell_result.headline
        == "greedy: prompt short: step 2: token 4 in the reference, the end in the candidate"
    )
    assert cell_result.notes == ("decode short: identical up to step 2, where the tokens differ",)


def test_the_same_tokens_from_other_logits_differ_and_are_no_split(memory):
    logits = step_logits(3, 1, 4)
    logits[1, 7] = 0.25
    other = logits.copy()
    other[1, 7] = 0.5
    cell_result = verdict_on(
        memory,
        *runs(memory, greedy={"short": decoded(memory, 3, 1, 4, logits=other)}),
        reference=runs(memory, "4.48", greedy={"short": decoded(memory, 3, 1, 4, logits=logits)}),
    )
    assert (cell_result.verdict, cell_result.splits, cell_result.figure) == (
        Verdict.UNDECIDED,
        (),
        "decode 0.25",
    )
    assert cell_result.headline.startswith("decode: prompt short: 1 of 48 elements, max abs 0.25 (")


def test_logits_come_before_decode_in_the_figure(memory):
    one, other = moved(memory)
    changed = {"short": decoded(memory, 3, 1, 4, top=[2.0, 1.5, 1.75])}
    cell_result = verdict_on(
        memory,
        *runs(memory, forward=other, greedy=changed),
        reference=runs(memory, "4.48", forward=one),
    )
    assert (cell_result.figure, cell_result.first.signal) == ("logits 0.5", "logits")


def test_steps_that_were_not_recorded_are_told_and_fail_nothing(memory):
    bare = {"short": decoded(memory, 3, 1, 4).model_copy(update={"logits": None})}
    cell_result = verdict_on(memory, *runs(memory, greedy=bare))
    assert cell_result.verdict == Verdict.IDENTICAL
    assert "decode" not in cell_result.headline
    assert cell_result.notes == (
        "decode: not compared: short: the logits of the steps were not recorded",
    )


def test_a_cell_whose_runs_decode_from_other_logits_is_unstable(memory):
    second = {"short": decoded(memory, 3, 1, 4, top=[2.0, 1.5, 1.75])}
    cell_result = verdict_on(memory, *runs(memory, second={"greedy": second}))
    assert (cell_result.verdict, cell_result.unstable) == (Verdict.UNSTABLE, ("decode short",))


@pytest.mark.parametrize(("bad", "word"), [(math.nan, "NaN"), (math.inf, "inf")], ids=str)
def test_nan_and_inf_are_said_instead_of_a_small_number(memory, bad, word):
    one, _ = moved(memory)
    logits = memory.tensor(one["short"].logits).copy()
    logits[0, 0, 0] = bad
    logits[0, 0, 1] += 1e-6
    cell_result = between(memory, one, logits_of(memory, logits))
    assert cell_result.figure == f"logits {word}"
    assert "0 → 1" in cell_result.headline


def test_no_difference_is_rounded_to_zero(memory):
    one = np.zeros((1, 6, 8), np.float32)
    cell_result = between(memory, logits_of(memory, one), logits_of(memory, -one))
    assert cell_result.figure == "logits 1 of 1"
    assert "only in signs of zero" in cell_result.headline


def test_another_dtype_alone_is_said(memory):
    one, _ = moved(memory)
    wider = memory.tensor(one["short"].logits).astype(np.float64)
    cell_result = between(memory, one, logits_of(memory, wider))
    assert cell_result.headline == (
        "logits: prompt short: all values are equal; dtype float32 in the reference, float64 in the candidate"
    )


def test_integers_have_no_ulp(memory):
    one, other = (logits_of(memory, np.full((1, 6, 8), n)) for n in (1, 3))
    cell_result = between(memory, one, other)
    assert cell_result.headline == "logits: prompt short: 48 of 48 elements, max abs 2"


def test_without_values_the_figure_counts(memory):
    other = logits_of(memory, values(1, 6, 8, seed=77), stored=False)
    cell_result = verdict_on(memory, *runs(memory, forward=other))
    assert (cell_result.verdict, cell_result.figure) == (Verdict.UNDECIDED, "logits 1 of 1")
    assert "not stored" in cell_result.headline


# notes


def test_a_sound_cell_has_no_notes(memory):
    assert verdict_on(memory, *runs(memory)).notes == ()


def test_what_is_worth_knowing_is_noted(memory):
    formula = FormulaFacts(rope_type="default", max_ulp=900.0, bound_ulp=40.0)
    load = sound_signals(memory)["load"].model_copy(
        update={"parameter_dtypes": {"float32": 3, "bfloat16": 2}, "activation_dtypes": {}}
    )
    tensors = sound_signals(memory)["weights"].tensors
    more = tensors | {"extra": weight(memory, values(3), origin="unexplained")}
    same = {
        "inv_freq": {
            "model.rotary_emb.inv_freq": frequencies(memory, values(2, seed=15), formula=formula)
        },
        "load": load,
        "weights": weights_signal(more),
        "buffers": {"model.mask": buffer(memory, values(3, 3, seed=14), fresh="differs")},
    }
    sides = [
        tuple(
            run.model_copy(update={"probe_effect": "changed the bits"})
            for run in runs(memory, stack, **same)
        )
        for stack in ("5.0", "4.48")
    ]
    cell_result = verdict_on(memory, *sides[0], reference=sides[1])
    assert cell_result.verdict == Verdict.IDENTICAL
    text = "\n".join(cell_result.notes)
    for words in (
        "weights unexplained",
        "buffers that differ from a model freshly constructed from the config: model.mask",
        "9e+02 ULP away from the formula",
        "float32 was requested, but of 5 parameters 2 in bfloat16",
        "watching the attention calls changed the logits",
    ):
        assert words in text
    assert len(cell_result.notes) == 5


def test_a_formula_within_its_bound_is_not_noted(memory):
    formula = FormulaFacts(rope_type="default", max_ulp=40.0, bound_ulp=40.0)
    close = {"r.inv_freq": frequencies(memory, values(2), formula=formula)}
    sides = runs(memory, inv_freq=close), runs(memory, "4.48", inv_freq=close)
    assert result(cell_id("5.0"), *sides, memory).notes == ()


# expected differences


class World:
    """Cells of two models on three stacks; ``differing`` names cells as model@stack -> signals."""

    def __init__(self, memory, **differing):
        self.memory = memory
        self.differing = {key.replace("__", "@"): what for key, what in differing.items()}
        self.results = [self.judged(m, s) for m in ("llama", "qwen") for s in STACKS]
        self.plan = [r.cell for r in self.results]

    def judged(self, model, stack):
        what = self.differing.get(f"{model}@{STACKS[stack]}", {})
        cell = cell_id(stack, model)
        if what in ("failed", "absent"):
            candidate = tuple(capture(stack, run=r, status=what, model=model) for r in "ab")
        elif what == "unstable":
            candidate = runs(
                self.memory,
                stack,
                model=model,
                second={"greedy": {"short": decoded(self.memory, 9)}},
            )
        else:
            candidate = runs(self.memory, stack, model=model, **what)
        return result(cell, candidate, runs(self.memory, "4.48", model=model), self.memory)

    def apply(self, *rules, ran=None, plan=None):
        results = [r for r in self.results if ran is None or ran(r.cell)]
        return apply_expected(results, rules, self.plan if plan is None else plan, "4.48")


STACKS = {"4.48": "ref", "5.0": "old", "5.9": "new"}


def expected(model=("llama",), stack=("5.0",), **more):
    return Expected(model=model, stack=stack, reason="known", **more)


def verdicts(results):
    return {f"{r.cell.model}@{r.cell.stack}": r.verdict.value for r in results}


def other_logits(memory):
    return {"forward": moved(memory)[1]}


def test_an_expected_difference_passes_and_keeps_what_was_judged(memory):
    world = World(memory, llama__old=other_logits(memory))
    results, (report,) = world.apply(expected(reference="issue 1", line=7))
    assert verdicts(results) == {
        "llama@4.48": "reference",
        "llama@5.0": "expected",
        "llama@5.9": "identical",
        "qwen@4.48": "reference",
        "qwen@5.0": "identical",
        "qwen@5.9": "identical",
    }
    cell_result = results[1]
    assert (cell_result.judged, cell_result.expected) == (Verdict.UNDECIDED, ("known",))
    assert report.cells == ("llama/float32-sdpa@5.0",)
    assert (report.fixed, report.evaluated, report.line) == ((), True, 7)
    assert report.text == "differs: model llama; environment 5.0"
    assert exit_code(results, [report], []) == (0, ())


def test_an_entry_covers_only_the_signals_it_names(memory):
    both = other_logits(memory) | {"greedy": {"short": decoded(memory, 8)}}
    world = World(memory, llama__old=both)
    results, reports = world.apply(expected(signal=("logits",)))
    assert results[1].verdict == Verdict.UNDECIDED
    assert reports[0].cells == ()
    assert reports[0].fixed == ()  # it does still occur, among other differences
    assert exit_code(results, reports, [])[0] == 1


def test_entries_cover_a_cell_together(memory):
    both = other_logits(memory) | {"greedy": {"short": decoded(memory, 8)}}
    world = World(memory, llama__old=both)
    rules = (
        expected(signal=("logi*",)),
        expected(signal=("decode", "greedy"), variant=("float32-*",)),
    )
    results, reports = world.apply(*rules)
    assert results[1].verdict == Verdict.EXPECTED
    assert [report.cells for report in reports] == [("llama/float32-sdpa@5.0",)] * 2


@pytest.mark.parametrize(
    "rule",
    [
        expected(model=("qwen",)),
        expected(stack=("5.9",)),
        expected(variant=("bfloat16-*",)),
        expected(signal=("weights",)),
        expected(verdict="unstable"),
        expected(verdict="failed"),
    ],
    ids=lambda rule: "-".join(
        (*rule.model, *rule.stack, *rule.variant, *rule.signal, rule.verdict)
    ),
)
def test_an_entry_for_something_else_covers_nothing(memory, rule):
    world = World(memory, llama__old=other_logits(memory))
    results, (report,) = world.apply(rule)
    assert results[1].verdict == Verdict.UNDECIDED
    assert report.cells == ()


@pytest.mark.parametrize("kind", ["unstable", "failed"])
def test_other_kinds_are_covered_by_their_own_entries(memory, kind):
    world = World(memory, llama__old=kind)
    results, (report,) = world.apply(expected(verdict=kind))
    assert (results[1].verdict, results[1].judged) == (Verdict.EXPECTED, Verdict(kind))
    assert report.fixed == ()
    wrong = world.apply(expected(verdict="differs"))
    assert wrong[0][1].verdict == Verdict(kind)
    assert wrong[1][0].fixed == ()  # a cell that fails may differ still


def test_an_unstable_signal_must_be_named_too(memory):
    world = World(memory, llama__old="unstable")
    for signals, verdict in (
        (("decode", "greedy"), "expected"),
        (("greedy",), "unstable"),
        (("decode",), "unstable"),
        (("logits",), "unstable"),
    ):
        rule = expected(verdict="unstable", signal=signals)
        assert world.apply(rule)[0][1].verdict == verdict


def test_a_difference_that_went_away_is_reported_and_fails(memory):
    world = World(memory, llama__old=other_logits(memory))
    results, (report,) = world.apply(expected(model=("llama", "qwen"), stack=("5.*",), line=3))
    assert report.fixed == ("qwen",)
    assert verdicts(results)["qwen@5.0"] == verdicts(results)["qwen@5.9"] == "fixed"
    assert verdicts(results)["llama@5.0"] == "expected"
    assert verdicts(results)["llama@5.9"] == "identical"
    code, reasons = exit_code(results, [report], [])
    assert code == 1
    (reason,) = reasons
    assert reason.startswith("expected, line 3: qwen no longer occurs (")
    assert "; remove it (differs: model " in reason


def test_each_stack_must_still_occur(memory):
    world = World(memory, llama__old=other_logits(memory))
    _, (report,) = world.apply(expected(stack=("5.0", "5.9")))
    assert report.fixed == ("5.9",)


def test_what_the_filters_left_out_is_not_called_fixed(memory):
    world = World(memory, llama__new=other_logits(memory))
    rule = expected(stack=("5.0", "5.9"))
    _, (report,) = world.apply(rule, ran=lambda cell: cell.stack != "5.9")
    assert report.fixed == ("5.0",)  # llama still occurs where it was not looked
    _, (report,) = world.apply(rule, ran=lambda cell: cell.model == "qwen")
    assert (report.fixed, report.evaluated) == ((), False)


def test_a_later_environment_that_was_left_out_changes_no_reference(memory):
    """As of olmo3, which 4.48 does not know: 4.57 is its reference with and without 5.2."""
    different = {"5.9": other_logits(memory)}
    sides = {s: runs(memory, s, **different.get(s, {})) for s in ("5.0", "5.9")}
    alone = [result(cell_id(s), side, sides["5.0"], memory) for s, side in sides.items()]
    rule, later, older = expected(stack=("5.9",)), cell_id("5.5"), cell_id("4.57")
    plan = [r.cell for r in alone]
    covered = {}
    for name, whole in {"later": [plan[0], later, plan[1]], "older": [older, *plan]}.items():
        results, _ = apply_expected(alone, [rule], whole, "4.48")
        covered[name] = bool(results[1].expected)
    assert covered == {"later": True, "older": False}


def test_beside_another_reference_than_the_matrix_has_nothing_is_called_fixed(memory):
    sides = {stack: runs(memory, stack) for stack in ("5.0", "5.9")}
    alone = [result(cell_id(s), side, sides["5.0"], memory) for s, side in sides.items()]
    assert [r.verdict for r in alone] == [Verdict.REFERENCE, Verdict.IDENTICAL]
    rule, left_out = expected(stack=("5.9",)), cell_id("4.48")
    plan = [r.cell for r in alone]
    results, (report,) = apply_expected(alone, [rule], [left_out, *plan], "4.48")
    assert (report.fixed, results[1].verdict) == ((), Verdict.IDENTICAL)
    for whole in (([*plan], "4.48"), ([left_out, *plan], "5.0")):
        results, (report,) = apply_expected(alone, [rule], *whole)
        assert (report.fixed, results[1].verdict) == (("llama", "5.9"), Verdict.FIXED)
    _, (report,) = apply_expected(
        alone, [expected(stack=("5.9",), verdict="failed")], [left_out, *plan], "4.48"
    )
    assert report.fixed == ("llama", "5.9")  # that it ran needs no reference


def test_beside_another_reference_than_the_matrix_has_no_difference_is_covered(memory):
    sides = {"5.0": runs(memory, "5.0"), "5.9": runs(memory, "5.9", **other_logits(memory))}
    alone = [result(cell_id(s), side, sides["5.0"], memory) for s, side in sides.items()]
    rule, left_out = expected(stack=("5.9",)), cell_id("4.48")
    plan = [r.cell for r in alone]
    results, (report,) = apply_expected(alone, [rule], [left_out, *plan], "4.48")
    assert results[1].verdict == Verdict.UNDECIDED
    assert (report.cells, report.fixed) == ((), ())
    assert report.untold == (str(cell_id("5.9")),)
    for whole in ((plan, "4.48"), ([left_out, *plan], "5.0")):
        results, (report,) = apply_expected(alone, [rule], *whole)
        assert results[1].verdict == Verdict.EXPECTED
        assert (report.cells, report.untold) == ((str(cell_id("5.9")),), ())


def test_what_is_in_no_plan_is_not_evaluated(memory):
    world = World(memory)
    results, (report,) = world.apply(expected(model=("gone",)))
    assert (report.fixed, report.evaluated) == ((), False)
    assert exit_code(results, [report], [])[0] == 0


def test_an_entry_for_a_cell_that_became_the_reference_is_not_called_fixed(memory):
    _, (report,) = World(memory).apply(expected(stack=("4.48",)))
    assert report.fixed == ()


def test_a_failure_that_went_away_is_fixed(memory):
    results, (report,) = World(memory).apply(expected(verdict="failed"))
    assert report.fixed == ("llama", "5.0")
    assert results[1].verdict == Verdict.FIXED


def test_a_message_in_short_goes_on_where_its_first_line_announces_the_next():
    def short(message):
        return Failure(phase="config", type="E", message=message, traceback="").in_short

    assert short("error for 'sizes':\n    ValueError: 47 is odd.\nand more") == (
        "error for 'sizes': ValueError: 47 is odd."
    )
    assert short("one\ntwo:\nthree") == "one"
    assert short("it ends so:\n") == "it ends so:"
    assert short("") == ""


# exit code


def test_what_is_said_of_nothing_compared_is_true_where_both_stacks_ran(memory):
    reference = runs(memory, "4.48")
    one, other = moved(memory)
    unstable = runs(memory, forward=one, second={"forward": other})
    alone = [result(cell_id("4.48"), reference, reference, memory)]
    alone.append(result(cell_id("5.0"), unstable, reference, memory))
    assert alone[1].verdict == Verdict.UNSTABLE
    _, reasons = exit_code(alone, [], [])
    assert reasons[-1].startswith("nothing was compared")
    assert "ran on both" not in reasons[-1]


def test_nothing_compared_is_never_a_pass(memory):
    reference = runs(memory, "4.48")
    alone = [result(cell_id("4.48"), reference, reference, memory)]
    for results in ([], alone):
        code, (reason,) = exit_code(results, [], [])
        assert code == 1
        assert reason.startswith("nothing was compared")
    absent = (capture("5.0", status="absent"), capture("5.0", run="b", status="absent"))
    alone.append(result(cell_id("5.0"), absent, reference, memory))
    assert exit_code(alone, [], [])[0] == 1
    alone.append(result(cell_id("5.9"), runs(memory, "5.9"), reference, memory))
    assert exit_code(alone, [], []) == (0, ())


def test_a_model_that_a_user_brings_and_no_stack_knows_fails_the_run(memory):
    world = World(memory, llama__old="absent")
    old = [r for r in world.results if r.verdict == Verdict.ABSENT]
    others = [r for r in world.results if r.cell.model != "llama"]
    for trusted, hint in ((False, True), (True, False)):
        code, (reason,) = exit_code([*old, *others], [], [], {"llama": trusted, "qwen": trusted})
        assert code == 1
        assert reason.startswith("llama is absent from every environment: ")
        assert reason.endswith("trust_remote_code: true") == hint
    assert exit_code([*old, *others], [], [])[0] == 0
    assert exit_code(world.results, [], [], {"llama": False, "qwen": False})[0] == 0


@pytest.mark.parametrize("what", ["failed", "unstable"])
def test_each_verdict_that_does_not_pass_is_counted(memory, what):
    world = World(memory, llama__old=what, qwen__old=what, qwen__new=other_logits(memory))
    code, reasons = exit_code(world.results, [], [])
    assert code == 1
    assert set(reasons) == {
        f"2 cells with verdict {what}: llama/float32-sdpa@5.0, qwen/float32-sdpa@5.0",
        "1 cell with verdict undecided: qwen/float32-sdpa@5.9",
    }


def test_a_stack_that_failed_fails_the_run(memory):
    for said in ("no wheel for it", "environment 5.9: no wheel\n  for it"):
        stacks = [StackReport(id="5.0"), StackReport(id="5.9", failure=said)]
        code, reasons = exit_code(World(memory).results, [], stacks)
        assert (code, reasons) == (1, ("environment 5.9 failed: no wheel for it",))


def test_a_stack_that_the_machine_did_not_let_be_built_is_incomplete(memory):
    """Its cells are not finished and say why; with one that failed the stack fails the run."""
    open_cell = {
        "verdict": Verdict.NOT_FINISHED,
        "rest": None,
        "open_reason": "No space left on device",
    }
    results = [
        r.model_copy(update=open_cell) if r.cell.stack == "5.9" else r
        for r in World(memory).results
    ]
    stacks = [StackReport(id="5.0"), StackReport(id="5.9", failure="No space left on device")]
    code, (reason,) = exit_code(results, [], stacks)
    assert code == 3
    assert "not finished: No space left on device" in reason
    failed = results[-1].model_copy(update={"verdict": Verdict.FAILED})
    assert exit_code([*results[:-1], failed], [], stacks)[0] == 1


def test_rounding_and_absence_pass(memory):
    world = World(memory, llama__old="absent")
    assert exit_code(world.results, [], [])[0] == 0
    fixed = ExpectedReport(line=0, text="t", reason="r", fixed=("x",))
    assert "an entry: x" in exit_code(world.results, [fixed], [])[1][0]


@pytest.mark.parametrize(
    ("entry", "told", "verdict", "fixed"),
    [
        ("differs", "rounding", "rounding", ("llama", "5.0")),
        ("differs", "diverged", "expected", ()),
        ("differs", "undecided", "expected", ()),
        ("diverged", "diverged", "expected", ()),
        ("diverged", "undecided", "undecided", ()),
        ("diverged", "rounding", "rounding", ("llama", "5.0")),
    ],
)
def test_an_entry_may_say_which_kind_of_difference_it_expects(memory, entry, told, verdict, fixed):
    world = World(memory, llama__old=other_logits(memory))
    said = Ladder(kind=told, rule="slope", reason="")
    world.results[1] = with_ladder(world.results[1], said)
    results, (report,) = world.apply(expected(verdict=entry))
    assert results[1].verdict == verdict
    assert report.fixed == fixed


def test_a_difference_that_is_rounding_passes_without_an_entry(memory):
    world = World(memory, llama__old=other_logits(memory))
    world.results[1] = with_ladder(
        world.results[1], Ladder(kind="rounding", rule="slope", reason="")
    )
    results, _ = world.apply()
    assert exit_code(results, [], []) == (0, ())


@pytest.mark.parametrize("verdict", ["differs", "diverged", "unstable"])
def test_a_release_that_does_not_know_the_model_proves_nothing_fixed(memory, verdict):
    world = World(memory, llama__old="absent")
    results, (report,) = world.apply(expected(verdict=verdict))
    assert report.fixed == ()
    assert verdicts(results)["llama@5.0"] == "absent"
    both = expected(stack=("5.*",), verdict=verdict)
    assert world.apply(both)[1][0].fixed == ("llama", "5.*")
    (report,) = World(memory).apply(expected(verdict=verdict))[1]
    assert report.fixed == ("llama", "5.0")


FLOAT8 = "TypeError: Unsupported dtype float8_e4m3fn"
OTHER = "ValueError: no such quantizer"


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (
            FLOAT8,
            FLOAT8,
            "not observed, as it raises the same in the candidate and in the reference: {}",
        ),
        (FLOAT8, OTHER, f"{{}} raises in the candidate and in the reference: {FLOAT8} → {OTHER}"),
        ("", "", ""),
        ("", FLOAT8, ""),
        (FLOAT8, "", ""),
    ],
)
def test_a_check_that_raises_on_both_sides_is_no_observation_and_has_a_note(
    memory, before, after, note
):
    def integrity(text):
        return IntegritySignal(poison="", raised={"load without a dtype": text})

    reference = runs(memory, "4.48", integrity=integrity(before))
    cell = verdict_on(memory, *runs(memory, integrity=integrity(after)), reference=reference)
    notes = [line for line in cell.notes if "raises" in line]
    assert cell.verdict is Verdict.IDENTICAL
    assert notes == ([note.format("integrity load without a dtype")] if note else [])

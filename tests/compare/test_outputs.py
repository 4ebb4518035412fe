"""Signal outputs: what a forward returns besides the logits, by name, bytes and padding."""

import numpy as np

from samebits.compare.outputs import ADDED, GONE, RENAMED
from samebits.compare.registry import units
from samebits.compare.signals import compare
from samebits.compare.stability import agrees, disagreements
from samebits.diagnose.verdict import result
from samebits.ladder.rule import Evidence, judgement
from samebits.records.capture import Skip
from tests.support.builders import (
    Memory,
    capture,
    cell_id,
    forward,
    nudged,
    sound,
    values,
    with_outputs,
)

POOLED, HEADS = values(1, 4, seed=50), values(1, 6, 3, seed=51)


def pair_of(memory, reference, candidate):
    return (
        with_outputs(memory, sound(memory), **reference),
        with_outputs(memory, sound(memory, "5.0"), **candidate),
    )


def compared(memory, reference, candidate):
    """Return the comparison of the outputs of two captures."""
    signals = compare(reference, candidate, memory)
    (signal,) = [signal for signal in signals if signal.signal == "outputs"]
    return signal


def outputs_of(memory, reference, candidate):
    return compared(memory, *pair_of(memory, reference, candidate))


def verdict_of(memory, reference, candidate):
    references, candidates = zip(
        *(pair_of(memory, reference, candidate) for _ in "ab"), strict=True
    )
    b = {"run": "b"}
    return result(
        cell_id("5.0"),
        (candidates[0], candidates[1].model_copy(update=b)),
        (references[0], references[1].model_copy(update=b)),
        memory,
    )


def test_models_that_return_the_logits_alone_have_no_such_signal(memory):
    signals = compare(sound(memory), sound(memory, "5.0"), memory)
    assert "outputs" not in [signal.signal for signal in signals]
    assert "outputs" in [unit.name for unit in units()]


def test_equal_outputs_are_identical(memory):
    signal = outputs_of(memory, {"pooler_output": POOLED}, {"pooler_output": POOLED})
    assert (signal.outcome, signal.n_items) == ("identical", 1)


def test_one_element_of_one_output_makes_the_cell_differ(memory):
    same, other = {"pooler_output": POOLED, "heads": HEADS}, nudged(HEADS, 0, 2, 1)
    signal = outputs_of(memory, same, {"pooler_output": POOLED, "heads": other})
    assert (signal.outcome, signal.n_items, signal.n_differ) == ("differs", 2, 1)
    (item,) = signal.items
    assert (item.name, item.metrics.n_differ) == ("short · heads", 1)
    judged = verdict_of(memory, same, {"pooler_output": POOLED, "heads": other})
    assert (judged.verdict, judged.first.signal) == ("undecided", "outputs")
    assert "short · heads" in judged.first.what
    assert judged.figure.startswith("outputs ")
    assert verdict_of(memory, same, same).verdict == "identical"


def test_an_output_that_is_gone_is_no_pass(memory):
    both = {"pooler_output": POOLED, "heads": HEADS}
    signal = outputs_of(memory, both, {"heads": HEADS})
    (item,) = signal.items
    assert (item.outcome, item.note, item.excused) == ("only in reference", GONE, False)
    assert signal.outcome == "differs"
    assert verdict_of(memory, both, {"heads": HEADS}).verdict == "undecided"


PAIR = values(2, 3, 4, seed=52)


def in_list(array, name="image_hidden_states"):
    return {f"{name}[{number}]": part for number, part in enumerate(array)}


def test_a_tensor_that_became_a_list_says_so_and_whether_the_bytes_are_the_same(memory):
    one = {"image_hidden_states": PAIR}
    for candidate, words in (
        (in_list(PAIR), "with the same bytes"),
        (in_list(nudged(PAIR, 1, 2, 3)), "with different bytes: 1 of 24 elements, max abs "),
        (in_list(PAIR[:, 1:]), "with a different number of elements"),
        (in_list(PAIR.astype(np.float64)), "in a different dtype"),
    ):
        (item,) = outputs_of(memory, one, candidate).items
        assert item.name == "short · image_hidden_states"
        assert item.note.startswith(
            f"returned as a list or tuple of 2 tensors instead of one tensor, {words}"
        )
        judged = verdict_of(memory, one, candidate)
        kind, rule, reason, rests_on = judgement(Evidence(judged.signals))
        assert (kind, rule) == ("diverged", "shape")
        assert item.note in reason
        assert [decider.subject for decider in rests_on] == [item.subject]


def test_a_list_of_one_tensor_is_another_name_of_the_same_bytes_or_another_form(memory):
    (item,) = outputs_of(memory, {"x": PAIR[0]}, {"x[0]": PAIR[0]}).items
    assert (item.outcome, item.note) == ("identical", RENAMED)
    (item,) = outputs_of(memory, {"x": PAIR[:1]}, {"x[0]": PAIR[0]}).items
    assert item.note == (
        "returned as a list or tuple of 1 tensor instead of one tensor, with the same bytes"
    )


def test_a_list_that_became_a_tensor_says_so(memory):
    (item,) = outputs_of(memory, in_list(PAIR), {"image_hidden_states": PAIR}).items
    assert item.note == (
        "returned as one tensor instead of a list or tuple of 2 tensors, with the same bytes"
    )
    judged = verdict_of(memory, in_list(PAIR), {"image_hidden_states": PAIR})
    assert judgement(Evidence(judged.signals)).kind == "diverged"


def test_a_list_of_values_that_are_not_kept_says_that_its_bytes_are_not_known(memory):
    pair = pair_of(memory, {"image_hidden_states": PAIR}, in_list(PAIR))
    assert "not known whether its bytes are the same" in compared(Memory(), *pair).items[0].note


def test_a_list_on_both_sides_is_compared_part_by_part(memory):
    assert outputs_of(memory, in_list(PAIR), in_list(PAIR)).outcome == "identical"
    signal = outputs_of(memory, in_list(PAIR), in_list(nudged(PAIR, 1, 0, 0)))
    assert [item.name for item in signal.items] == ["short · image_hidden_states[1]"]


def test_an_output_that_is_gone_beside_another_list_is_gone(memory):
    both = {"image_hidden_states": PAIR, "heads": HEADS}
    items = outputs_of(memory, both, {"heads": HEADS, **in_list(PAIR, "image_hidden")}).items
    assert [item.note for item in items] == [GONE, ADDED, ADDED]


def test_that_all_outputs_are_gone_is_no_pass(memory):
    reference = with_outputs(memory, sound(memory), pooler_output=POOLED)
    assert compared(memory, reference, sound(memory, "5.0")).outcome == "differs"


def test_an_output_that_is_new_is_noted(memory):
    both = {"pooler_output": POOLED, "heads": HEADS}
    signal = outputs_of(memory, {"heads": HEADS}, both)
    (item,) = signal.items
    assert (item.outcome, item.note, item.excused) == ("only here", ADDED, True)
    assert signal.outcome == "identical"
    assert verdict_of(memory, {"heads": HEADS}, both).verdict == "identical"


def test_new_outputs_alone_are_no_comparison_and_no_failure(memory):
    candidate = with_outputs(memory, sound(memory, "5.0"), pooler_output=POOLED)
    signal = compared(memory, sound(memory), candidate)
    assert (signal.outcome, signal.excused) == ("not compared", True)


def test_the_same_bytes_under_a_new_name_are_noted(memory):
    signal = outputs_of(memory, {"pooled": POOLED}, {"pooler_output": POOLED})
    (item,) = signal.items
    assert (signal.outcome, item.note) == ("identical", RENAMED)
    assert item.name == "short · pooled → pooler_output"


def test_other_bytes_under_a_new_name_are_one_gone_and_one_new(memory):
    signal = outputs_of(memory, {"pooled": POOLED}, {"pooler_output": POOLED + 1})
    assert [item.outcome for item in signal.items] == ["only in reference", "only here"]
    assert signal.outcome == "differs"


def test_an_output_is_not_found_again_in_one_that_was_there_before(memory):
    """Two outputs of equal bytes, of which one is gone: it is gone."""
    signal = outputs_of(memory, {"one": POOLED, "two": POOLED}, {"one": POOLED})
    assert [(i.name, i.outcome) for i in signal.items] == [("short · two", "only in reference")]


def test_two_names_of_the_same_bytes_are_found_again_in_two_new_ones_only(memory):
    equal = {"one": POOLED, "two": POOLED}
    assert outputs_of(memory, equal, {"a": POOLED, "b": POOLED}).outcome == "identical"
    assert outputs_of(memory, equal, {"a": POOLED}).outcome == "differs"


def padded(memory, stack, array):
    ids = [[0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6]]
    facts = forward(memory, ids=ids, logits=values(2, 6, 8), real_rows=((2, 6), (0, 6)))
    return with_outputs(memory, capture(stack, forward={"short": facts}), heads=array)


def test_padding_of_an_output_does_not_count(memory):
    tokens, scores = values(2, 6, 3, seed=52), values(2, 3, seed=53)
    boxes, losses = values(2, 9, 3, seed=54), values(3, seed=55)
    for array, index, outcome in (
        (tokens, (0, 1, 2), "identical"),
        (tokens, (0, 2, 2), "differs"),
        (scores, (0, 1), "differs"),  # those of rows have no padding
        (boxes, (0, 1, 2), "differs"),  # nor has an axis of another length than the prompt's
        (losses, (1,), "differs"),
    ):
        sides = padded(memory, "4.48", array), padded(memory, "5.0", nudged(array, *index))
        assert compared(memory, *sides).outcome == outcome
        for side in sides:  # without token ids nothing says which axis the prompt's is
            facts = side.signals.forward["short"]
            facts.inputs.clear()
            facts.inputs["inputs_embeds"] = memory.put(values(2, 6, 4))
        unknown = "not compared" if array is tokens else outcome
        assert compared(memory, *sides).outcome == unknown


def test_both_runs_of_a_cell_must_agree_on_every_output(memory):
    a = with_outputs(memory, sound(memory), heads=HEADS)
    b = with_outputs(memory, sound(memory, run="b"), heads=nudged(HEADS, 0, 0, 0))
    assert disagreements(a, a.model_copy(update={"run": "b"})) == ()
    assert [str(d) for d in disagreements(a, b)] == ["outputs short · heads"]


def test_a_short_run_agrees_only_if_it_has_every_output(memory):
    whole = sound(memory, greedy=None)
    a, short = with_outputs(memory, whole, heads=HEADS), {"run": "b", "extent": "short"}
    lacks, short = whole.model_copy(update=short), a.model_copy(update=short)
    assert agrees(short, a)
    assert not agrees(lacks, a)


def test_an_output_without_bytes_on_one_side_is_not_called_gone(memory):
    reference, candidate = pair_of(memory, {"pooled": POOLED, "heads": HEADS}, {"heads": HEADS})
    skip = Skip(what="tensor outputs pooled", reason="meta", tensor="pooled", tensor_of="outputs")
    candidate = candidate.model_copy(update={"skips": (skip,)})
    signal = compared(memory, reference, candidate)
    assert (signal.outcome, signal.items[0].outcome) == ("identical", "not compared")


def test_outputs_after_other_inputs_are_not_compared(memory):
    runs = []
    for stack, first in (("4.48", 1), ("5.0", 2)):
        facts = forward(memory, ids=[[first, 2, 3]], logits=values(1, 3, 8))
        run = capture(stack, forward={"short": facts})
        runs.append(with_outputs(memory, run, heads=HEADS + np.float32(first)))
    signal = compared(memory, *runs)
    assert (signal.outcome, signal.excused) == ("not compared", True)

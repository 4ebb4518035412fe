"""Whole captures: identical to itself, symmetric, and no flipped byte goes unseen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.compare.pair import reason
from samebits.compare.registry import signal_names
from samebits.compare.signals import changes, compare, disagreements, never_written, wanted
from samebits.records.capture import Skip
from samebits.records.ids import EXPLANATORY
from samebits.records.subject import Subject
from tests.support.builders import (
    Memory,
    attention,
    buffer,
    call,
    capture,
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
    values,
    weight,
    weights_signal,
)
from tests.support.partial import raised

REAL = ((2, 6), (0, 6))


def padded_signals(memory, logits=None, hidden=None):
    ids = np.arange(12).reshape(2, 6)
    hidden = hidden or [values(2, 6, 4, seed=s) for s in (1, 2)]
    logits = values(2, 6, 8, seed=3) if logits is None else logits
    return {
        "forward": {
            "short": forward(
                memory, ids=ids, hidden=layers(memory, *hidden), logits=logits, real_rows=REAL
            )
        }
    }


def by_signal(memory, reference, candidate):
    return {found.signal: found for found in compare(reference, candidate, memory)}


def outcomes(memory, reference, candidate):
    return {name: found.outcome for name, found in by_signal(memory, reference, candidate).items()}


def only(memory, reference, candidate, signal):
    """Return the comparison of ``signal``; every other one must be identical."""
    return only_these(memory, reference, candidate, signal)[signal]


def only_these(memory, reference, candidate, *signals):
    """Return all comparisons; every one but those of ``signals`` must be identical."""
    found = by_signal(memory, reference, candidate)
    others = {name: s.outcome for name, s in found.items() if name not in signals}
    assert set(others.values()) == {"identical"}, others
    return found


def test_every_judged_signal_is_compared_in_order_of_data_flow(memory):
    found = compare(sound(memory), sound(memory, "5.0"), memory)
    no_such_thing = EXPLANATORY | {"outputs", "state"}  # neither side has anything of the kind
    assert [s.signal for s in found] == [s for s in signal_names() if s not in no_such_thing]


def test_the_same_is_identical_and_reads_no_values(memory):
    assert set(outcomes(memory, sound(memory), sound(memory, "5.0")).values()) == {"identical"}
    assert memory.reads == 0


def test_nothing_is_never_identical(memory):
    found = compare(capture(), capture("5.0"), memory)
    assert {s.outcome for s in found} == {"not compared"}
    assert not any(s.excused for s in found)
    assert all("no reason was recorded" in s.note for s in found)


CARRIED = {"forward": ("inputs", "hidden_states", "logits"), "greedy": ("decode", "greedy")}


@pytest.mark.parametrize("signal", ["weights", "buffers", "inv_freq", "forward", "greedy"])
def test_a_signal_on_one_side_only_is_not_compared(memory, signal):
    names = CARRIED.get(signal, (signal,))
    whole, less = sound(memory), sound(memory, "5.0", **{signal: None})
    for reference, candidate in ((whole, less), (less, whole)):
        found = by_signal(memory, reference, candidate)
        for name in names:
            assert found[name].outcome == "not compared"
            assert not found[name].excused
    told = sound(memory, "5.0", skips={signal: "too large"}, **{signal: None})
    found = by_signal(memory, whole, told)
    for name in names:
        assert found[name].excused
        assert "too large" in found[name].note
    # A reason on the side that has it excuses nothing.
    found = by_signal(memory, sound(memory, skips={signal: "too large"}), less)
    assert not any(found[name].excused for name in names)


@pytest.mark.parametrize("empty", [{}, None], ids=["empty", "none"])
def test_nothing_inside_a_signal_is_not_identical_either(memory, empty):
    reference, candidate = sound(memory, forward=empty), sound(memory, "5.0", forward=empty)
    found = by_signal(memory, reference, candidate)
    for name in ("inputs", "hidden_states", "logits"):
        assert found[name].outcome == "not compared"
        assert not found[name].excused


def test_weights_without_a_tensor_are_not_identical(memory):
    nothing = weights_signal({})
    found = by_signal(memory, sound(memory, weights=nothing), sound(memory, weights=nothing))
    assert found["weights"].outcome == "not compared"
    assert not found["weights"].excused


def test_a_tensor_without_elements_is_not_identical(memory):
    facts = {"short": forward(memory, logits=values(0, 6, 8), hidden=layers(memory, values(0, 3)))}
    found = by_signal(memory, sound(memory, forward=facts), sound(memory, forward=facts))
    assert found["logits"].outcome == found["hidden_states"].outcome == "not compared"


# prompts and skips


def two_prompts(memory):
    facts = sound_signals(memory)["forward"]
    return facts | {"long": facts["short"]}


@pytest.mark.parametrize("what", ["prompt long", "forward long", "forward: long", "logits long"])
def test_a_prompt_on_one_side_only_is_excused_by_its_skip_alone(memory, what):
    reference = sound(memory, forward=two_prompts(memory))
    bare = by_signal(memory, reference, sound(memory, "5.0"))
    assert bare["logits"].outcome == "not compared"
    assert not bare["logits"].excused
    told = by_signal(memory, reference, sound(memory, "5.0", skips={what: "no window"}))
    assert told["logits"].outcome == "identical"
    assert told["logits"].n_items == 1
    assert "no window" in told["logits"].note
    assert (told["hidden_states"].outcome == "identical") == (what != "logits long")
    other = by_signal(memory, reference, sound(memory, "5.0", skips={"prompt other": "no"}))
    assert other["logits"].outcome == "not compared"


COMPUTED = {"inputs", "hidden_states", "logits"}
TOKENS = {"decode", "greedy"}


@pytest.mark.parametrize(
    ("what", "why", "names"),
    [
        ("forward", "plain", COMPUTED),
        ("forward", "inputs", COMPUTED | TOKENS),
        ("prompt short", "plain", COMPUTED | TOKENS),
        ("greedy", "plain", TOKENS),
        ("logits", "plain", {"logits"}),
        ("usage", "cost", set()),
    ],
)
def test_a_skip_excuses_what_it_names_and_what_needs_it(memory, what, why, names):
    gone = dict.fromkeys(("weights", "buffers", "inv_freq", "forward", "greedy"))
    skip = Skip(what=what, reason="no", why=why)
    found = by_signal(memory, sound(memory), sound(memory, "5.0", skips=[skip], **gone))
    assert {name for name, signal in found.items() if signal.excused} == names


def test_what_was_not_decoded_has_no_logits_of_its_steps():
    for what, of_decode in (("greedy", "no"), ("usage", ""), ("logits", "")):
        assert reason(capture(skips={what: "no"}), "decode") == of_decode


@pytest.mark.parametrize(
    ("phase", "outcome"),
    [
        ("greedy", "identical"),
        ("greedy long", "identical"),
        ("forward long", "identical"),
        ("greedy short", "not compared"),
        ("logits long", "not compared"),
        ("usage", "not compared"),
    ],
)
def test_an_exception_excuses_the_rows_of_its_prompt_alone(memory, phase, outcome):
    """It is raised on both sides, so it makes no cell fail: what else is gone must."""
    rows = {"short": decoded(memory, 3), "long": decoded(memory, 4)}
    failures = (raised(phase),)
    reference = sound(memory, forward=two_prompts(memory), greedy=rows)
    candidate = sound(memory, "5.0", forward=two_prompts(memory), greedy={"short": rows["short"]})
    sides = (run.model_copy(update={"failures": failures}) for run in (reference, candidate))
    assert by_signal(memory, *sides)["greedy"].outcome == outcome


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ("no", "no", "raises the same exception in the reference: ValueError: no"),
        (
            "no",
            "other",
            "not observed in the reference: {}no; not observed in the candidate: {}other",
        ),
        ("", "no", "not observed in the reference: {silent}; not observed in the candidate: {}no"),
        ("no", "", "not observed in the reference: {}no; not observed in the candidate: {silent}"),
    ],
)
def test_what_neither_side_has_is_excused_if_each_gives_a_reason(memory, before, after, note):
    sides = [
        sound(memory, greedy=None).model_copy(
            update={"failures": (raised(message=text),) if text else ()}
        )
        for text in (before, after)
    ]
    found = by_signal(memory, *sides)["greedy"]
    raises = "phase greedy short raised ValueError: "
    silent = "no reason was recorded"
    assert found.note == note.replace("{}", raises).replace("{silent}", silent)
    assert found.excused is bool(before and after)


def test_a_skip_about_origins_does_not_excuse_missing_weights(memory):
    less = sound(memory, "5.0", skips={"weights: origin": "no checkpoint"}, weights=None)
    assert not by_signal(memory, sound(memory), less)["weights"].excused


# inputs


def test_other_inputs_differ_and_hold_back_what_follows(memory):
    other = two_prompts(memory)
    changed = forward(
        memory,
        ids=np.arange(1, 7).reshape(1, 6),
        hidden=layers(memory, *(values(1, 6, 4, seed=9 + i) for i in range(3))),
        logits=values(1, 6, 8, seed=99),
    )
    other["long"] = changed
    reference = sound(memory, forward=two_prompts(memory), greedy={"long": decoded(memory, 1)})
    found = by_signal(
        memory, reference, sound(memory, forward=other, greedy={"long": decoded(memory, 2)})
    )
    assert found["inputs"].outcome == "differs"
    assert [i.name for i in found["inputs"].items] == ["long · input_ids"]
    assert found["logits"].outcome == "identical"  # of the other prompt
    assert "the inputs differ" in found["logits"].note
    for name in CARRIED["greedy"]:
        assert found[name].outcome == "not compared"
        assert found[name].excused


def test_an_input_fed_to_one_side_only_is_a_difference(memory):
    facts = sound_signals(memory)["forward"]["short"]
    more = facts.model_copy(
        update={"inputs": facts.inputs | {"token_type_ids": memory.put(np.zeros((1, 6)))}}
    )
    found = by_signal(memory, sound(memory), sound(memory, forward={"short": more}))
    assert found["inputs"].outcome == "differs"
    assert found["inputs"].items[0].outcome == "only here"


# hidden states and logits


def test_the_layer_that_differs_is_found_and_all_are_listed(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    changed = [arrays[0], arrays[1], nudged(arrays[2], 0, 3, 1, by=0)]
    found = only(
        memory, sound(memory), sound(memory, forward=hidden_of(memory, *changed)), "hidden_states"
    )
    assert [(i.name, i.outcome) for i in found.items] == [
        ("short · layer 0 (embeddings)", "identical"),
        ("short · layer 1 (model.layers.0)", "identical"),
        ("short · layer 2 (model.layers.1)", "differs"),
    ]
    assert (found.n_items, found.n_differ) == (3, 1)
    assert found.items[2].metrics.max_ulp == 1
    assert found.items[2].metrics.first_index == (0, 3, 1)


def test_renamed_layers_pair_by_position(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    names = ["embeddings", "language_model.layers.0", "language_model.layers.1"]
    renamed = sound(memory, forward=hidden_of(memory, *arrays, names=names))
    found = only(memory, sound(memory), renamed, "hidden_states")
    assert found.outcome == "identical"
    assert found.items[1].name == "short · layer 1 (model.layers.0 → language_model.layers.0)"
    assert found.items[1].subject == Subject(
        prompt="short", layer=1, tensor="model.layers.0", counterpart="language_model.layers.0"
    )


@pytest.mark.parametrize("name", ["model.layers.0", "model.aifi.0"])
def test_a_renamed_layer_of_another_shape_is_no_counterpart(memory, name):
    """RT-DETR of 5.3 has a list of what holds its encoders, and their output is an image again."""
    first, last = values(1, 6, 4), values(1, 6, 4, seed=2)
    old = hidden_of(memory, first, values(1, 6, 4, seed=1), last)
    names = ["embeddings", name, "model.layers.1"]
    new = hidden_of(memory, first, values(1, 4, 2, 3, seed=1), last, names=names)
    found = only(memory, sound(memory, forward=old), sound(memory, forward=new), "hidden_states")
    outcomes = [item.outcome for item in found.items]
    if name == "model.layers.0":
        assert (found.outcome, outcomes) == ("differs", ["identical", "differs", "identical"])
    else:
        assert found.outcome == "identical"
        assert outcomes == ["identical", "only in reference", "only here", "identical"]


@pytest.mark.parametrize(
    "names",
    [
        ["model.layers.0", "model.layers.1"],
        ["model.layers.0", "model.layers.1", "model.norm"],
        ["embeddings", "lm.layers.0", "lm.layers.1", "lm.norm"],
    ],
    ids=lambda names: names[-1] + str(len(names)),
)
def test_layers_that_do_not_stand_at_their_position_pair_by_name(memory, names):
    known = {"embeddings": 0, "layers.0": 1, "layers.1": 2}
    ends = [".".join(name.split(".")[1:]) or name for name in names]
    arrays = [values(1, 6, 4, seed=known.get(end, 77)) for end in ends]
    other = sound(memory, forward=hidden_of(memory, *arrays, names=names))
    for reference, candidate in ((sound(memory), other), (other, sound(memory))):
        found = only(memory, reference, candidate, "hidden_states")
        assert found.outcome == "identical"
        assert found.n_items == len(set(ends) & set(known))


def test_equal_ends_of_names_that_are_not_unique_are_not_paired(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    names = ["encoder.layers.0", "decoder.layers.0", "decoder.layers.1"]
    reference = sound(memory, forward=hidden_of(memory, *arrays, names=names))
    candidate = sound(memory, forward=hidden_of(memory, *arrays[1:], names=names[1:]))
    found = only(memory, reference, candidate, "hidden_states")
    assert found.outcome == "identical"
    assert [i.outcome for i in found.items] == ["only in reference", "identical", "identical"]


@pytest.mark.parametrize("renamed", ["none", "text", "image"])
def test_the_inputs_of_two_towers_are_not_compared(memory, renamed):
    text, image = (values(1, 6, 4, seed=seed) for seed in (1, 2))
    first, second = values(1, 6, 4, seed=3), values(1, 9, 4, seed=4)
    names = ["embeddings", "text.layers.0", "image.layers.0"]
    reference = sound(memory, forward=hidden_of(memory, first, text, image, names=names))
    swapped = ["embeddings", "image.layers.0", "text.layers.0"]
    swapped = [f"{renamed}.roberta.0" if renamed in name else name for name in swapped]
    candidate = sound(memory, forward=hidden_of(memory, second, image, text, names=swapped))
    found = only(memory, reference, candidate, "hidden_states")
    assert found.outcome == "identical"
    assert found.items[0].outcome == "only in reference"
    assert any(i.outcome == "identical" for i in found.items)


def test_the_input_of_one_tower_is_compared_though_a_layer_is_gone(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    names = ["embeddings", "model.layers.0", "model.layers.1"]
    reference = sound(memory, forward=hidden_of(memory, *arrays, names=names))
    other = hidden_of(memory, arrays[2], arrays[1], names=names[:2])
    found = only(memory, reference, sound(memory, forward=other), "hidden_states")
    assert [i.outcome for i in found.items] == ["differs", "identical", "only in reference"]


def test_an_input_of_another_shape_is_a_difference_if_it_is_of_the_same_layers(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    names = ["embeddings", "model.layers.0", "model.layers.1"]
    reference = sound(memory, forward=hidden_of(memory, *arrays, names=names))
    longer = hidden_of(memory, values(1, 9, 4), arrays[1], names=names[:2])
    found = only(memory, reference, sound(memory, forward=longer), "hidden_states")
    assert [i.outcome for i in found.items] == ["differs", "identical", "only in reference"]
    # of two towers, equal shapes are compared, and so is a layer that is no input
    swapped = [names[0], *names[:0:-1]]
    for first, last, outcomes_ in (
        (arrays[2], arrays[1], ["differs", "identical", "identical"]),
        (arrays[0], values(1, 9, 4), ["identical", "differs", "identical"]),
    ):
        other = hidden_of(memory, first, arrays[2], last, names=swapped)
        found = only(memory, reference, sound(memory, forward=other), "hidden_states")
        assert [i.outcome for i in found.items] == outcomes_


def test_an_end_of_a_name_pairs_only_what_no_name_does_and_only_where_it_is_unique(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    for names, other_names, outcomes_ in (
        (["a.norm"], ["a.norm", "b.norm"], ["identical", "only here"]),
        (["a.norm"], ["x.head", "b.norm"], ["identical", "only here"]),
        (["a.norm", "b.norm", "head"], ["head", "x.norm"], None),
    ):
        of_end = {"a.norm": arrays[0], "head": arrays[2]}
        of_end |= {"b.norm": arrays[0 if "x.head" in other_names else 1], "x.norm": arrays[2]}
        of_end |= {"x.head": arrays[1]}
        sides = [
            sound(memory, forward=hidden_of(memory, *(of_end[n] for n in each), names=each))
            for each in (names, other_names)
        ]
        found = only(memory, *sides, "hidden_states")
        one_sided = ["only in reference", "only in reference", "identical", "only here"]
        assert [i.outcome for i in found.items] == (outcomes_ or one_sided)


def test_layers_of_which_none_pairs_are_not_identical(memory):
    names = ["a.x", "b.y"]
    other = sound(memory, forward=hidden_of(memory, values(1, 2), values(1, 2), names=names))
    found = by_signal(memory, sound(memory), other)["hidden_states"]
    assert found.outcome == "not compared"


def test_no_layers_on_one_side_is_not_compared_and_on_both_is_excused(memory):
    none = sound(memory, forward=hidden_of(memory, names=[]))
    one_sided = by_signal(memory, sound(memory), none)["hidden_states"]
    assert (one_sided.outcome, one_sided.excused) == ("not compared", False)
    both = by_signal(memory, none, none)["hidden_states"]
    assert (both.outcome, both.excused) == ("not compared", True)


def test_a_layer_run_twice_pairs_turn_by_turn(memory):
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    names = ["shared.0", "shared.0", "shared.0"]
    reference = sound(memory, forward=hidden_of(memory, *arrays, names=names))
    candidate = sound(memory, forward=hidden_of(memory, *arrays[:2], names=names[:2]))
    assert only(memory, reference, candidate, "hidden_states").n_items == 2


def test_logits_come_with_what_they_decide(memory):
    logits = values(1, 6, 8, seed=16)
    changed = logits.copy()
    changed[0, 5, logits[0, 5].argmin()] = 99
    found = only(memory, sound(memory), sound(memory, forward=logits_of(memory, changed)), "logits")
    metrics = found.items[0].metrics
    assert (found.items[0].name, metrics.n_argmax, metrics.n_positions) == ("short", 1, 6)
    assert metrics.top[0].token == str(logits[0, 5].argmin())
    assert metrics.kl_max > 0


@pytest.mark.parametrize(
    "change",
    [lambda a: a.astype(np.float64), lambda a: a[:, :5], lambda a: a.reshape(6, 8)],
    ids=["dtype", "shape", "rank"],
)
def test_another_dtype_or_shape_differs(memory, change):
    logits = values(1, 6, 8, seed=16)
    candidate = sound(memory, forward=logits_of(memory, change(logits)))
    found = only(memory, sound(memory), candidate, "logits")
    assert found.outcome == "differs"
    assert "in the reference" in found.items[0].note


def test_signs_of_zero_differ_and_equal_nans_do_not(memory):
    zeros, nans = np.zeros((1, 6, 8), np.float32), np.full((1, 6, 8), np.nan, np.float32)
    sides = [sound(memory, forward=logits_of(memory, a)) for a in (zeros, -zeros, nans)]
    assert outcomes(memory, sides[0], sides[1])["logits"] == "differs"
    assert outcomes(memory, sides[2], sides[2])["logits"] == "identical"


@pytest.mark.parametrize("skips", [{}, {"logits short": "no head"}], ids=["silent", "told"])
def test_logits_on_one_side_only_need_a_reason(memory, skips):
    facts = sound_signals(memory)["forward"]["short"].model_copy(update={"logits": None})
    found = by_signal(memory, sound(memory), sound(memory, forward={"short": facts}, skips=skips))
    assert (found["logits"].outcome, found["logits"].excused) == ("not compared", bool(skips))
    assert found["hidden_states"].outcome == "identical"


def test_without_values_the_hash_decides_and_the_second_look_asks_for_them(memory):
    changed = logits_of(memory, values(1, 6, 8, seed=17), stored=False)
    reference, candidate = sound(memory), sound(memory, "5.0", forward=changed)
    signals = compare(reference, candidate, memory)
    item = next(s for s in signals if s.signal == "logits").items[0]
    assert (item.outcome, item.metrics) == ("differs", None)
    assert "not stored" in item.note
    hash = changed["short"].logits.hash
    assert wanted(reference, candidate, signals, memory) == ((candidate.cell, (hash,)),)
    memory.put(values(1, 6, 8, seed=17))
    assert wanted(reference, candidate, compare(reference, candidate, memory), memory) == ()


def test_nothing_is_wanted_of_what_is_identical(memory):
    reference, candidate = sound(memory), sound(memory, "5.0")
    assert wanted(reference, candidate, compare(reference, candidate, memory), memory) == ()


# padding


def padded(memory, **changed):
    return sound(memory, **(padded_signals(memory) | changed))


def test_a_pad_row_alone_is_no_difference_and_is_told(memory):
    hidden = [values(2, 6, 4, seed=1), nudged(values(2, 6, 4, seed=2), 0, 1, 3)]
    candidate = sound(
        memory, **padded_signals(memory, nudged(values(2, 6, 8, seed=3), 0, 0, 0), hidden)
    )
    found = by_signal(memory, padded(memory), candidate)
    assert found["logits"].outcome == found["hidden_states"].outcome == "identical"
    item = found["logits"].items[0]
    assert (item.pad_rows, item.metrics, item.pad_metrics.n_differ) == ("differ", None, 1)
    assert found["hidden_states"].items[1].pad_rows == "differ"
    assert found["hidden_states"].items[0].pad_rows == "identical"


def test_real_rows_are_measured_without_the_padding(memory):
    logits = nudged(values(2, 6, 8, seed=3), 0, 0, 0, by=100)
    logits = nudged(logits, 1, 0, 5, by=0.5)
    found = by_signal(memory, padded(memory), sound(memory, **padded_signals(memory, logits)))
    item = found["logits"].items[0]
    assert (item.outcome, item.pad_rows) == ("differs", "differ")
    assert item.metrics.max_abs == pytest.approx(0.5)
    assert item.metrics.n_positions == 10
    assert item.pad_metrics.max_abs == pytest.approx(100)


def test_padded_without_values_is_neither_identical_nor_different(memory):
    signals = padded_signals(memory)
    other = values(2, 6, 8, seed=30)
    ref = memory.put(other, stored=False)
    forwards = {"short": signals["forward"]["short"].model_copy(update={"logits": ref})}
    reference, candidate = sound(memory, **signals), sound(memory, "5.0", forward=forwards)
    found = compare(reference, candidate, memory)
    logits = next(s for s in found if s.signal == "logits")
    assert (logits.outcome, logits.excused) == ("not compared", False)
    assert "real rows" in logits.note
    assert wanted(reference, candidate, found, memory) == ((candidate.cell, (ref.hash,)),)


def test_a_dtype_differs_whatever_the_padding_does(memory):
    logits = values(2, 6, 8, seed=3).astype(np.float64)
    found = by_signal(memory, padded(memory), sound(memory, **padded_signals(memory, logits)))
    assert found["logits"].outcome == "differs"


def pooled(memory, logits, **more):
    facts = padded_signals(memory)["forward"]["short"]
    return {"short": facts.model_copy(update={"logits": memory.put(logits)} | more)}


def test_outputs_without_a_token_axis_are_judged_whole(memory):
    one = sound(memory, forward=pooled(memory, values(2, 3), logits_padded=False))
    other = sound(memory, forward=pooled(memory, values(2, 3, seed=1), logits_padded=False))
    assert by_signal(memory, one, other)["logits"].outcome == "differs"
    assert by_signal(memory, one, one)["logits"].outcome == "identical"


def test_labels_are_not_taken_for_positions(memory):
    """[batch, 6 labels] beside 6 positions: nothing is cut, and nothing is claimed."""
    one = sound(memory, forward=pooled(memory, values(2, 6)))
    other = sound(memory, forward=pooled(memory, nudged(values(2, 6), 0, 0)))
    assert by_signal(memory, one, other)["logits"].outcome == "not compared"


@pytest.mark.parametrize("which", ["first", "second"])
def test_each_layer_says_for_itself_whether_its_padding_can_be_cut(memory, which):
    """What differs in a pad row counts only where dimension 1 is no axis of the padding."""

    def side(place=None):
        facts = padded_signals(memory)["forward"]["short"]
        plain = values(2, 6, 4, seed=1), values(2, 6, 4, seed=2)
        arrays = [a if place is None else nudged(a, *place) for a in plain]
        found = layers(memory, *arrays)
        said = [layer.model_copy(update={"padded": layer.name == kept}) for layer in found]
        forwards = {"short": facts.model_copy(update={"hidden_states": tuple(said)})}
        return sound(memory, forward=forwards)

    kept = "embeddings" if which == "first" else "model.layers.0"
    one, other = side(), side((0, 0, 0))
    items = by_signal(memory, one, other)["hidden_states"].items
    told = {item.subject.tensor: item for item in items}
    assert (told[kept].outcome, told[kept].pad_rows) == ("identical", "differ")
    del told[kept]
    (uncut,) = told.values()
    assert (uncut.outcome, uncut.excused, uncut.pad_rows) == ("not compared", True, "none")
    unstable = named(one, other, memory)
    assert [name.endswith("(pad rows)") for name in unstable] == [
        which == "first",
        which == "second",
    ]


@pytest.mark.parametrize("inputs", ["ids", "embeddings", "ids with a margin"])
@pytest.mark.parametrize(
    ("shape", "outcome"),
    [((6, 2, 7), "not compared"), ((12, 7), "not compared"), ((5, 2, 7), "differs")],
    ids=str,
)
def test_padding_on_another_axis_is_not_guessed_at(memory, shape, outcome, inputs):
    changed = {
        "ids": {},
        "embeddings": {"inputs": {"inputs_embeds": memory.put(values(2, 6, 4))}},
        "ids with a margin": {"real_rows": ((0, 3), (1, 4))},
    }

    def side(seed):
        facts = padded_signals(memory)["forward"]["short"]
        hidden = layers(memory, values(*shape, seed=seed), padded=False)
        update = {"hidden_states": hidden} | changed[inputs]
        return sound(memory, forward={"short": facts.model_copy(update=update)})

    found = by_signal(memory, side(1), side(2))["hidden_states"]
    assert (found.outcome, found.excused) == (outcome, outcome == "not compared")
    assert by_signal(memory, side(1), side(1))["hidden_states"].outcome == "identical"


def test_ranges_that_do_not_fit_cut_nothing(memory):
    def side(seed):
        facts = padded_signals(memory, values(2, 5, 8, seed=seed))["forward"]["short"]
        return sound(memory, forward={"short": facts})

    assert by_signal(memory, side(1), side(2))["logits"].outcome == "differs"


def test_nothing_but_padding_is_not_compared(memory):
    facts = padded_signals(memory)["forward"]["short"]
    blank = {"short": facts.model_copy(update={"real_rows": ((6, 6), (6, 6))})}
    found = by_signal(memory, sound(memory, forward=blank), sound(memory, forward=blank))
    assert found["logits"].outcome == "not compared"


# greedy


@pytest.mark.parametrize(
    ("ids", "step"), [((3, 1, 5), "step 2"), ((3, 1), "the end"), ((9, 1, 4), "token 9")], ids=str
)
def test_other_tokens_differ(memory, ids, step):
    candidate = sound(memory, greedy={"short": decoded(memory, *ids)})
    found = only_these(memory, sound(memory), candidate, "decode", "greedy")["greedy"]
    assert found.outcome == "differs"
    assert step in found.items[0].note


def test_no_tokens_are_not_identical(memory):
    none = sound(memory, greedy={"short": decoded(memory)})
    found = by_signal(memory, none, none)
    assert found["greedy"].outcome == found["decode"].outcome == "not compared"


def test_ties_that_swap_ids_are_no_difference(memory):
    one, other = decoded(memory, 3, 1), decoded(memory, 3, 1)
    swapped = tuple(((b[0], a[1]), (a[0], b[1])) for a, b in other.top2)
    other = other.model_copy(update={"top2": swapped})
    pair = (sound(memory, greedy={"short": g}) for g in (one, other))
    assert by_signal(memory, *pair)["greedy"].items == ()


def test_a_row_of_a_batch_belongs_to_its_prompt(memory):
    rows = {"short[0]": decoded(memory, 1), "short[1]": decoded(memory, 2)}
    reference = sound(memory, greedy=rows)
    assert set(outcomes(memory, reference, reference).values()) == {"identical"}
    less = sound(
        memory, greedy={"short[0]": decoded(memory, 1)}, skips={"greedy short": "too long"}
    )
    found = by_signal(memory, reference, less)["greedy"]
    assert (found.outcome, found.n_items) == ("identical", 1)


# decode


def stepped(memory, logits, *ids, **more):
    """Return a greedy signal whose tokens are ``ids``, or the usual ones, chosen from ``logits``."""
    return {"short": decoded(memory, *(ids or (3, 1, 4)), logits=logits, **more)}


def test_the_same_tokens_from_other_logits_differ_in_decode_alone(memory):
    other = nudged(step_logits(3, 1, 4), 1, 7, by=0)
    found = only(memory, sound(memory), sound(memory, greedy=stepped(memory, other)), "decode")
    assert (found.outcome, found.n_items, found.n_differ) == ("differs", 1, 1)
    metrics = found.items[0].metrics
    assert (metrics.max_ulp, metrics.first_index) == (1, (1, 7))
    assert (metrics.n_argmax, metrics.n_positions) == (0, 3)
    assert found.items[0].note == ""


def test_where_tokens_part_their_step_is_the_last_that_counts(memory):
    """Behind it every logit is another one, for what was fed is."""
    logits = step_logits(3, 1, 4)
    logits[2] = values(16, seed=80)
    at_split = nudged(logits, 1, 5)
    for other, outcome in ((logits, "identical"), (at_split, "differs")):
        candidate = sound(memory, greedy=stepped(memory, other, 3, 2, 9))
        found = only_these(memory, sound(memory), candidate, "decode", "greedy")
        assert found["greedy"].outcome == "differs"
        assert found["decode"].outcome == outcome
        (item,) = found["decode"].items
        assert (item.outcome, item.note) == (outcome, "up to step 1, where the tokens differ")
        if outcome == "identical":
            assert item.metrics is None
        else:
            assert (item.metrics.n, item.metrics.n_differ) == (2 * 16, 1)
            assert item.metrics.n_positions == 2


@pytest.mark.parametrize("turned", [False, True], ids=["here", "in-the-reference"])
def test_a_side_that_ends_earlier_is_compared_as_far_as_it_goes(memory, turned):
    logits = step_logits(3, 1, 4)
    for other, outcome in ((logits, "identical"), (nudged(logits, 1, 5), "differs")):
        sides = [sound(memory), sound(memory, greedy=stepped(memory, other[:2], 3, 1))]
        found = only_these(memory, *(sides[::-1] if turned else sides), "decode", "greedy")
        assert found["greedy"].outcome == "differs"
        assert found["decode"].outcome == outcome
        assert found["decode"].items[0].note == "up to step 2, where the tokens differ"


@pytest.mark.parametrize("ids", [(3, 1, 4), (3, 9, 4)], ids=["same-tokens", "other-tokens"])
def test_another_vocabulary_is_another_shape(memory, ids):
    other = stepped(memory, step_logits(*ids, vocabulary=20), *ids)
    found = by_signal(memory, sound(memory), sound(memory, greedy=other))["decode"]
    assert found.outcome == "differs"
    assert found.items[0].note == "shape [3, 16] in the reference, [3, 20] in the candidate"


@pytest.mark.parametrize("ids", [(3, 1, 4), (3, 9, 4)], ids=["same-tokens", "other-tokens"])
def test_steps_in_another_dtype_differ(memory, ids):
    other = stepped(memory, step_logits(3, 1, 4).astype(np.float64), *ids)
    found = by_signal(memory, sound(memory), sound(memory, greedy=other))["decode"]
    assert found.outcome == "differs"
    assert "dtype float32 in the reference, float64 in the candidate" in found.items[0].note
    assert found.items[0].metrics.n_differ == 0


def test_without_values_decode_differs_by_its_hash_and_asks_for_them(memory):
    logits = nudged(step_logits(3, 1, 4), 1, 7)
    greedy = stepped(memory, logits, stored=False)
    reference, candidate = sound(memory), sound(memory, "5.0", greedy=greedy)
    signals = compare(reference, candidate, memory)
    item = next(s for s in signals if s.signal == "decode").items[0]
    assert (item.outcome, item.metrics) == ("differs", None)
    assert "not stored" in item.note
    hashes = (greedy["short"].logits.hash,)
    assert wanted(reference, candidate, signals, memory) == ((candidate.cell, hashes),)


@pytest.mark.parametrize("n", [2, 3])
def test_without_values_nothing_is_claimed_of_steps_before_the_split(memory, n):
    logits = step_logits(3, 9, 5)[:n]
    greedy = stepped(memory, logits, *(3, 9, 5)[:n], stored=False)
    reference, candidate = sound(memory), sound(memory, "5.0", greedy=greedy)
    signals = compare(reference, candidate, memory)
    found = next(s for s in signals if s.signal == "decode")
    assert (found.outcome, found.excused) == ("not compared", False)
    assert "before the tokens do" in found.note
    hashes = (greedy["short"].logits.hash,)
    assert wanted(reference, candidate, signals, memory) == ((candidate.cell, hashes),)
    memory.put(logits)
    assert by_signal(memory, reference, candidate)["decode"].outcome == "differs"


@pytest.mark.parametrize("sides", ["reference", "candidate", "both"])
def test_steps_that_were_not_recorded_are_not_compared_and_excused(memory, sides):
    bare = {"short": decoded(memory, 3, 1, 4).model_copy(update={"logits": None})}
    reference = sound(memory, **({} if sides == "candidate" else {"greedy": bare}))
    candidate = sound(memory, **({} if sides == "reference" else {"greedy": bare}))
    found = only(memory, reference, candidate, "decode")
    assert (found.outcome, found.excused) == ("not compared", True)
    assert "not recorded" in found.note


def test_no_step_at_all_is_not_identical(memory):
    greedy = {"short": decoded(memory, logits=np.zeros((0, 16), np.float32))}
    for other in (greedy, None):
        candidate = sound(memory, **({"greedy": other} if other else {}))
        found = by_signal(memory, sound(memory, greedy=greedy), candidate)["decode"]
        assert (found.outcome, found.excused) == ("not compared", True)


# properties


def flipped(array, position):
    data = bytearray(array.tobytes())
    data[position % len(data)] ^= 1 << (position % 8)
    return np.frombuffer(bytes(data), array.dtype).reshape(array.shape)


def change(memory, where, position):
    """Return a capture that differs from the sound one in a single bit of ``where``."""
    signals = sound_signals(memory)
    if where == "weights":
        array = flipped(values(4, seed=13), position)
        changed = {"model.norm.weight": weight(memory, array, origin="unexplained")}
        return sound(memory, weights=weights_signal(signals["weights"].tensors | changed))
    if where == "buffers":
        return sound(
            memory, buffers={"model.mask": buffer(memory, flipped(values(3, 3, seed=14), position))}
        )
    if where == "inv_freq":
        array = flipped(values(2, seed=15), position)
        return sound(memory, inv_freq={"model.rotary_emb.inv_freq": frequencies(memory, array)})
    if where == "logits":
        return sound(memory, forward=logits_of(memory, flipped(values(1, 6, 8, seed=16), position)))
    if where == "decode":
        logits = flipped(step_logits(3, 1, 4), position)
        return sound(memory, greedy={"short": decoded(memory, 3, 1, 4, logits=logits)})
    arrays = [values(1, 6, 4, seed=seed) for seed in range(3)]
    arrays[position % 3] = flipped(arrays[position % 3], position)
    return sound(memory, forward=hidden_of(memory, *arrays))


PLACES = st.sampled_from(["weights", "buffers", "inv_freq", "hidden_states", "logits", "decode"])


@given(PLACES, st.integers(0, 1 << 20))
def test_any_flipped_bit_is_found_in_its_signal_alone_and_from_both_sides(where, position):
    memory = Memory()
    one, other = sound(memory), change(memory, where, position)
    found = only(memory, one, other, where)
    assert found.outcome == "differs"
    assert outcomes(memory, one, other) == outcomes(memory, other, one)
    assert set(outcomes(memory, other, other).values()) == {"identical"}
    assert named(one, other) != ()


@given(st.integers(0, 2 * 6 * 8 * 4 - 1))
def test_a_flipped_bit_counts_if_its_row_is_real(position):
    memory = Memory()
    logits = values(2, 6, 8, seed=3)
    one = sound(memory, **padded_signals(memory))
    other = sound(memory, **padded_signals(memory, flipped(logits, position)))
    row, place = divmod(position // (8 * 4), 6)
    real = REAL[row][0] <= place < REAL[row][1]
    found = by_signal(memory, one, other)["logits"]
    assert found.outcome == ("differs" if real else "identical")
    assert found.items[0].pad_rows == ("identical" if real else "differ")
    names = named(one, other, memory)
    assert names == (("logits short",) if real else ("logits short (pad rows)",))


# two runs of one cell


def named(*runs):
    """Return what differs between two runs, in words."""
    return tuple(map(str, disagreements(*runs)))


def test_two_equal_runs_agree(memory):
    assert named(sound(memory), sound(memory, run="b", attention=None)) == ()


def test_signals_that_neither_run_observed_are_no_disagreement():
    assert named(capture(), capture(run="b")) == ()


def test_a_signal_that_one_run_lacks_is_a_disagreement(memory):
    facts = sound_signals(memory)["forward"]["short"].model_copy(update={"logits": None})
    second = sound(memory, run="b", forward={"short": facts})
    assert named(sound(memory), second, memory) == ("logits short",)


def test_everything_that_differs_between_runs_is_named(memory):
    tensors = sound_signals(memory)["weights"].tensors
    other = weights_signal(tensors | {"model.norm.weight": weight(memory, values(4, seed=50))})
    second = sound(
        memory,
        run="b",
        weights=other,
        buffers={},
        inv_freq={
            "model.rotary_emb.inv_freq": frequencies(memory, values(2, seed=15), scaling=2.0)
        },
        forward=hidden_of(memory, *(values(1, 6, 4, seed=seed) for seed in (0, 1, 51))),
        greedy={"short": decoded(memory, 3, 1, 4, top=[2.0, 1.875, 1.0])},
    )
    assert named(sound(memory), second, memory) == (
        "weights model.norm.weight",
        "buffers model.mask",
        "inv_freq model.rotary_emb.inv_freq",
        "hidden_states short · layer 2 (model.layers.1)",
        "decode short",
    )


def test_tokens_and_the_logits_they_were_chosen_from_are_told_apart(memory):
    logits = nudged(step_logits(3, 1, 4), 2, 7)
    for changed, names in (
        (decoded(memory, 3, 1, 4, logits=logits), ("decode short",)),
        (decoded(memory, 3, 1, 4, top=[2.0, 1.875, 1.0]), ("decode short",)),
        (decoded(memory, 3, 1, 5), ("decode short", "greedy short")),
        (decoded(memory, 3, 1, 4).model_copy(update={"logits": None}), ("decode short",)),
    ):
        second = sound(memory, run="b", greedy={"short": changed})
        assert named(sound(memory), second, memory) == names


def test_statuses_that_differ_are_a_disagreement(memory):
    (name,) = named(sound(memory), capture(run="b", status="failed"))
    assert name == "status: complete in run a, failed in run b"


def test_padding_is_not_told_apart_without_values(memory):
    one = padded(memory)
    other = sound(memory, **padded_signals(memory, nudged(values(2, 6, 8, seed=3), 0, 0, 0)))
    assert named(one, other) == ("logits short",)
    assert named(one, other, Memory()) == ("logits short",)


def test_memory_that_nothing_wrote_is_named(memory):
    tensors = {"w": weight(memory, values(2), origin="unwritten")}
    found = sound(
        memory,
        weights=weights_signal(tensors),
        buffers={"b": buffer(memory, values(3), unwritten=True)},
    )
    unwritten = tuple(map(str, never_written(found)))
    assert unwritten == ("weights w (never written)", "buffers b (never written)")
    assert never_written(sound(memory)) == ()


# explanatory changes


def test_nothing_changed(memory):
    load = sound_signals(memory)["load"].model_copy(update={"seconds": 9.0})
    assert changes(sound(memory), sound(memory, "5.0", load=load)) == {}


def test_config_and_load_changes_are_told_key_by_key(memory):
    config = {"hidden_size": 4.0, "rope": {"theta": 1e6}, "new": None}
    load = sound_signals(memory)["load"].model_copy(update={"missing_keys": ("a",)})
    found = changes(sound(memory), sound(memory, config=config, load=load))
    told = [(c.what, c.reference, c.candidate) for c in found["config"]]
    assert told == [
        ("hidden_size", 4, 4.0),
        ("rope.theta", 10000.0, 1e6),
        ("new", "absent", None),
    ]
    assert [c.what for c in found["load"]] == ["missing_keys"]


def test_kernel_changes_are_told_once_for_all_layers(memory):
    moved = [call(i, enable_gqa=True).model_copy(update={"source": "other.py:1"}) for i in (0, 1)]
    found = changes(sound(memory), sound(memory, attention=attention(*moved)))
    (change,) = found["attention.kernel"]
    assert change.what == "short · model.layers.*.self_attn · sdpa.enable_gqa (2 times)"
    assert (change.reference, change.candidate) == (False, True)


def test_prompts_that_one_side_did_not_watch_are_left_out(memory):
    other = attention(call(0, enable_gqa=True), prompt="long")
    assert changes(sound(memory), sound(memory, attention=other)) == {}


def test_a_call_without_sdpa_and_another_number_of_calls_are_told(memory):
    eager = call(0).model_copy(update={"sdpa": None})
    found = changes(sound(memory), sound(memory, attention=attention(eager)))
    assert [c.what for c in found["attention.kernel"]] == [
        "short · number of calls",
        "short · model.layers.*.self_attn · sdpa",
    ]

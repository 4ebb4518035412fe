"""Weights in checkpoint space: planted defects, and beside each what must not be accused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.compare.signals import changes, compare
from samebits.compare.slices import coverage, same_part
from samebits.compare.weights import constant
from samebits.ladder.constants import constants
from tests.support.builders import buffer, sound, values, weight, weights_signal

Q, K = values(4, 6, seed=1), values(2, 6, seed=2)
E = values(8, 6, seed=3)


def judged(memory, mine, theirs, *, buffers=(None, None), skips=(), traced=4):
    sides = [
        sound(
            memory,
            weights=weights_signal(tensors, checkpoint_tensors=traced),
            buffers=own or {},
            skips=skips,
        )
        for tensors, own in zip((mine, theirs), buffers, strict=True)
    ]
    signals = [
        next(s for s in compare(*pair, memory) if s.signal == "weights")
        for pair in (sides, sides[::-1])
    ]
    assert signals[0].outcome == signals[1].outcome
    assert signals[0].n_differ == signals[1].n_differ
    return signals[0]


def separate(memory):
    return {"q": weight(memory, Q, "q"), "k": weight(memory, K, "k"), "e": weight(memory, E, "e")}


def test_itself(memory):
    found = judged(memory, separate(memory), separate(memory))
    assert (found.outcome, found.n_items, found.items) == ("identical", 3, ())


def test_renamed(memory):
    other = {f"model.{name}": facts for name, facts in separate(memory).items()}
    assert judged(memory, separate(memory), other).outcome == "identical"


@pytest.mark.parametrize(
    ("array", "layout"),
    [(np.concatenate([Q, K]), "concat dim 0"), (np.concatenate([K, Q]), "concat dim 0")],
    ids=["qk", "kq"],
)
def test_fused(memory, array, layout):
    fused = {"qk": weight(memory, array, "q", "k", layout=layout), "e": weight(memory, E, "e")}
    assert judged(memory, separate(memory), fused).outcome == "identical"


def test_stacked_and_transposed(memory):
    experts = [values(3, 2, seed=i) for i in range(4)]
    alone = {f"experts.{i}": weight(memory, a, f"x{i}") for i, a in enumerate(experts)}
    turned = np.stack([a.T for a in experts])
    names = [f"x{i}" for i in range(4)]
    stack = {"experts": weight(memory, turned, *names, layout="stack of transpose")}
    assert judged(memory, alone, stack).outcome == "identical"
    lacking = {"experts": weight(memory, turned[:3], *names[:3], layout="stack of transpose")}
    found = judged(memory, alone, lacking)
    assert (found.outcome, found.n_differ) == ("differs", 1)
    assert found.items[0].name == "x3"
    assert found.items[0].outcome == "only in reference"


def test_split_and_whole(memory):
    halves = {
        "gate": weight(memory, E[:4], ("e", "[0:4]"), layout="split dim 0"),
        "up": weight(memory, E[4:], ("e", "[4:8]"), layout="split dim 0"),
    }
    assert judged(memory, {"e": weight(memory, E, "e")}, halves).outcome == "identical"
    assert judged(memory, halves, halves).outcome == "identical"
    del halves["up"]
    found = judged(memory, {"e": weight(memory, E, "e")}, halves)
    assert found.outcome == "differs"
    assert "part [0:4]" in found.items[0].note


def test_parts_of_unknown_extent_are_not_judged(memory):
    whole = {"qe": weight(memory, np.concatenate([Q, E]), "q", "e", layout="concat dim 0")}
    parts = {
        "q": weight(memory, Q, "q"),
        "a": weight(memory, E[:4], ("e", "[0:4]"), layout="split dim 0"),
        "b": weight(memory, E[4:], ("e", "[4:8]"), layout="split dim 0"),
    }
    found = judged(memory, whole, parts)
    assert (found.outcome, found.excused) == ("not compared", False)


def test_a_missing_tensor_and_an_extra_one(memory):
    less = separate(memory)
    del less["k"]
    found = judged(memory, separate(memory), less)
    assert (found.outcome, found.n_items, found.n_differ) == ("differs", 3, 1)
    assert "by no tensor on the other side" in found.items[0].note


def test_another_dtype(memory):
    half = separate(memory) | {"q": weight(memory, Q.astype(np.float16), "q")}
    found = judged(memory, separate(memory), half)
    assert (found.outcome, found.n_differ) == ("differs", 1)
    assert found.items[0].note == "dtype float32 in the reference, float16 in the candidate"
    fused = np.concatenate([Q, K]).astype(np.float16)
    other = {
        "qk": weight(memory, fused, "q", "k", layout="concat dim 0"),
        "e": weight(memory, E, "e"),
    }
    assert judged(memory, separate(memory), other).n_differ == 2


def test_layers_of_equal_bytes_in_another_dtype_are_compared_by_value(memory):
    """A_log of falcon_mamba, which 4.57.6 loads in float32: the numbers of the file, in each layer the same."""

    def layers(array):
        return {f"{i}.a": weight(memory, array, f"{i}.a", stored=True) for i in range(3)}

    half = Q.astype(np.float16)
    for finer, kind in ((half.astype(np.float32), "cast"), (half + np.float32(1), "changed")):
        found = judged(memory, layers(half), layers(finer))
        assert (found.outcome, found.n_differ) == ("differs", 1)
        (constant_,) = constants([found], memory)
        assert constant_.kind == kind


def test_a_second_copy_in_another_dtype(memory):
    more = separate(memory) | {"copy": weight(memory, Q.astype(np.float64), "q")}
    assert judged(memory, separate(memory), more).outcome == "differs"
    same = separate(memory) | {"copy": weight(memory, Q, "q")}
    assert judged(memory, separate(memory), same).outcome == "identical"


def test_two_that_claim_the_same_and_hold_other_bytes(memory):
    other = separate(memory) | {"q": weight(memory, Q + 1, "q", stored=True)}
    found = judged(memory, separate(memory), other)
    assert (found.outcome, found.n_differ, found.items[0].name) == ("differs", 1, "q")
    assert "not stored" in found.items[0].note


def test_a_tie_under_another_name_counts_once(memory):
    tied = {"embed": weight(memory, E, "e", aliases=("lm_head",))}
    other = {"lm_head": weight(memory, E, "e", aliases=("embed",))}
    assert judged(memory, tied, other).n_items == 1
    untied = {"embed": weight(memory, E, "e"), "lm_head": weight(memory, E, "e")}
    assert judged(memory, tied, untied).outcome == "identical"
    lost = {
        "embed": weight(memory, E, "e"),
        "lm_head": weight(memory, E + 1, origin="reinitialised"),
    }
    found = judged(memory, tied, lost)
    assert found.outcome == "differs"
    assert found.items[0].name in ("lm_head", "embed")


@pytest.mark.parametrize("origin", ["derived", "reinitialised", "unwritten", "unexplained"])
def test_what_is_not_loaded_pairs_by_name(memory, origin):
    one = separate(memory) | {"extra": weight(memory, values(3), origin=origin)}
    other = separate(memory) | {"extra": weight(memory, values(3, seed=9), origin=origin)}
    assert judged(memory, one, one).outcome == "identical"
    assert judged(memory, one, one).n_items == 4
    found = judged(memory, one, other)
    assert (found.outcome, found.n_differ) == ("differs", 1)
    assert origin in found.items[0].note


def test_swapped_contents_of_known_names_differ(memory):
    a, b = values(3, seed=8), values(3, seed=9)
    one = {"a": weight(memory, a), "b": weight(memory, b)}
    other = {"a": weight(memory, b), "b": weight(memory, a)}
    assert judged(memory, one, other).n_differ == 2


def test_what_is_not_loaded_pairs_by_bytes_if_it_was_renamed(memory):
    one = separate(memory) | {"extra": weight(memory, values(3))}
    other = separate(memory) | {"other": weight(memory, values(3))}
    assert judged(memory, one, other).outcome == "identical"


def test_what_is_not_loaded_and_on_one_side_only_differs(memory):
    one = separate(memory) | {"extra": weight(memory, values(3), origin="reinitialised")}
    found = judged(memory, one, separate(memory))
    assert (found.outcome, found.items[0].outcome) == ("differs", "only in reference")


def test_one_tensor_reinitialised_is_one_difference(memory):
    lost = separate(memory) | {"q": weight(memory, Q + 1, origin="reinitialised")}
    found = judged(memory, separate(memory), lost)
    assert (found.n_differ, found.items[0].name) == (1, "q")
    assert "loaded in the reference, reinitialised in the candidate" in found.items[0].note


def test_a_fused_tensor_reinitialised_is_a_difference(memory):
    lost = {
        "qk": weight(memory, values(6, 6, seed=77), origin="reinitialised"),
        "e": weight(memory, E, "e"),
    }
    assert judged(memory, separate(memory), lost).outcome == "differs"


def test_equal_bytes_are_equal_whatever_they_are_said_to_be(memory):
    other = separate(memory) | {"q": weight(memory, Q, origin="unexplained")}
    found = judged(memory, separate(memory), other)
    assert (found.outcome, found.n_items) == ("identical", 3)


# Equal bytes in the checkpoint: which of them a tensor is traced to is chance.


def test_equal_tensors_traced_to_each_other(memory):
    one = {"n1": weight(memory, K, "n1"), "n2": weight(memory, K, "n2")}
    other = {"m1": weight(memory, K, "n2"), "m2": weight(memory, K, "n2")}
    assert judged(memory, one, other).outcome == "identical"


def test_fused_zero_biases_traced_to_one_of_them_or_to_a_stranger(memory):
    zeros = np.zeros(4, np.float32)
    one = {name: weight(memory, zeros, name) for name in ("qb", "kb", "vb")}
    one |= {"other": weight(memory, np.zeros(8, np.float32), "other"), "e": weight(memory, E, "e")}
    fused = np.zeros(12, np.float32)
    for names in (("qb", "qb", "qb"), ("other", "kb")):
        other = {
            "qkvb": weight(memory, fused, *names, layout="concat dim 0"),
            "other": weight(memory, np.zeros(8, np.float32), "other"),
            "e": weight(memory, E, "e"),
        }
        assert judged(memory, one, other).outcome == "identical"


def test_constants_are_told(memory):
    assert constant(memory.put(np.zeros((2, 3), np.float16))) == "zeros float16"
    assert constant(memory.put(np.ones(3, np.float32))) == "ones float32"
    assert constant(memory.put(np.array([0.0, -0.0]))) is None
    assert constant(memory.put(np.zeros(0))) is None


# Persistent buffers


def test_a_buffer_that_is_no_longer_persistent(memory):
    mask = values(3, seed=5)
    one = separate(memory) | {"mask": weight(memory, mask, kind="buffer")}
    kept = {"mask": buffer(memory, mask, persistent=True)}
    plain = {"mask": buffer(memory, mask)}
    assert judged(memory, one, separate(memory), buffers=(kept, plain)).outcome == "identical"
    changed = {"mask": buffer(memory, mask + 1)}
    assert judged(memory, one, separate(memory), buffers=(kept, changed)).outcome == "differs"


def test_a_derived_persistent_buffer_on_one_side_only_is_told(memory):
    one = separate(memory) | {"mask": weight(memory, values(3), kind="buffer")}
    found = judged(memory, one, separate(memory))
    assert (found.outcome, found.items[0].outcome) == ("identical", "only in reference")
    assert found.items[0].excused
    loaded = separate(memory) | {"mask": weight(memory, values(3), "mask", kind="buffer")}
    assert judged(memory, loaded, separate(memory)).outcome == "differs"


def test_a_derived_parameter_on_one_side_only_shows_in_what_is_computed_from_it(memory):
    norm = separate(memory) | {"norm": weight(memory, np.ones(3, np.float32), origin="derived")}
    found = judged(memory, norm, separate(memory))
    assert (found.outcome, found.items[0].excused) == ("identical", True)
    assert "a derived parameter that the other side does not have" in found.items[0].note
    drawn = separate(memory) | {"norm": weight(memory, values(3), origin="reinitialised")}
    assert judged(memory, drawn, separate(memory)).outcome == "differs"


@pytest.mark.parametrize(
    ("computed", "outcome"),
    [
        (np.arange(6), "identical"),
        (np.arange(6).reshape(3, 2), "identical"),
        (np.arange(6)[::-1], "differs"),
        (np.arange(6, dtype=np.int32), "differs"),
        (np.arange(7), "differs"),
    ],
)
def test_a_saved_buffer_that_the_other_side_computes_in_another_shape(memory, computed, outcome):
    table = weight(memory, np.arange(6).reshape(2, 3), "index", kind="buffer", stored=True)
    plain = {"other.index": buffer(memory, computed)}
    found = judged(
        memory, separate(memory) | {"index": table}, separate(memory), buffers=({}, plain)
    )
    assert found.outcome == outcome
    parameter = weight(memory, np.arange(6).reshape(2, 3), "index", stored=True)
    held = separate(memory) | {"index": parameter}
    assert judged(memory, held, separate(memory), buffers=({}, plain)).outcome == "differs"


def test_a_frozen_table_that_became_a_buffer_of_the_same_name(memory):
    sines = np.arange(6).reshape(2, 3)
    held = separate(memory) | {"sines": weight(memory, sines, "sines", stored=True)}
    for name, numbers, outcome in (
        ("sines", sines, "identical"),
        ("sines", sines + 1, "differs"),
        ("other", sines, "differs"),
    ):
        buffers = ({}, {name: buffer(memory, numbers)})
        assert judged(memory, held, separate(memory), buffers=buffers).outcome == outcome


# No checkpoint to trace to


def test_without_a_checkpoint_names_and_bytes_decide(memory):
    one = {
        "q": weight(memory, Q, origin="unexplained"),
        "k": weight(memory, K, origin="unexplained"),
    }
    skips = {"weights: origin": "no safetensors"}
    assert judged(memory, one, one, traced=0, skips=skips).outcome == "identical"
    other = one | {"k": weight(memory, K + 1, origin="unexplained")}
    assert judged(memory, one, other, traced=0, skips=skips).outcome == "differs"
    fused = {"qk": weight(memory, np.concatenate([Q, K]), origin="unexplained")}
    told = judged(memory, one, fused, traced=0, skips=skips)
    assert (told.outcome, told.excused) == ("not compared", True)
    silent = judged(memory, one, fused, traced=0)
    assert (silent.outcome, silent.excused) == ("not compared", False)


# Layout changes


def test_a_side_without_a_checkpoint_cannot_be_said_to_lack_a_tensor(memory):
    fused = {"qk": weight(memory, np.concatenate([Q, K]), origin="unexplained")}
    sides = [
        sound(memory, weights=weights_signal(tensors, checkpoint_tensors=n), skips=skips)
        for tensors, n, skips in (
            (separate(memory), 3, {}),
            (fused, 0, {"weights: origin": "pickled"}),
        )
    ]
    for pair in (sides, sides[::-1]):
        found = next(s for s in compare(*pair, memory) if s.signal == "weights")
        assert (found.outcome, found.excused) == ("not compared", True)
        assert "pickled" in found.note


def test_a_transposed_piece_is_described(memory):
    turned = weight(memory, Q.T, "q", layout="reshape")
    pieces = (turned.pieces[0].model_copy(update={"transposed": True}),)
    other = {"q": turned.model_copy(update={"pieces": pieces})}
    one = {"q": weight(memory, Q, "q")}
    sides = [sound(memory, weights=weights_signal(tensors)) for tensors in (one, other)]
    assert changes(*sides)["weights layout"][0].candidate == "q (reshape, transposed)"


def test_layout_changes_are_told_once_for_all_layers(memory):
    def side(pattern, n=3):
        arrays = [values(2, 2, seed=i) for i in range(n)]
        named = {pattern.format(i): weight(memory, a, f"h.{i}.w") for i, a in enumerate(arrays)}
        return sound(memory, weights=weights_signal(named))

    found = changes(side("model.{}.w"), side("model.layers.{}.w"))
    (change,) = found["weights layout"]
    assert change.what == "h.*.w (3 times)"
    assert (change.reference, change.candidate) == ("model.*.w", "model.layers.*.w")


def test_swapped_weights_show_as_a_layout_change(memory):
    one = {"l.0.w": weight(memory, Q, "a"), "l.1.w": weight(memory, Q + 1, "b")}
    other = {"l.0.w": weight(memory, Q + 1, "b"), "l.1.w": weight(memory, Q, "a")}
    sides = [sound(memory, weights=weights_signal(tensors)) for tensors in (one, other)]
    assert len(changes(*sides)["weights layout"]) == 2


# Parts


@pytest.mark.parametrize(
    ("one", "other", "shape", "same"),
    [
        ([""], ["[0:4]", "[4:8]"], (8, 6), True),
        ([""], ["[0:4]", "[5:8]"], (8, 6), False),
        ([""], ["[4:8]", "[0:4]"], None, None),
        ([""], ["[:, 0:3]", "[:, 3:6]"], (8, 6), True),
        ([""], ["[0]", "[1]", "[2]"], (3, 6), True),
        ([""], ["[0, 0:3]", "[0, 3:6]", "[1, 0:6]"], (2, 6), True),
        ([""], ["[0::2]", "[1::2]"], (4,), None),
        ([""], ["[0:4:2]", "[1:4:2]"], (4,), True),
        (["[0:4]"], ["[0:2]", "[2:4]"], None, True),
        (["[0:4]"], ["[0:3]"], None, False),
        (["[0:4]"], ["[:, 0:4]"], None, None),
        (["[0:4]"], ["[:, 0:4]"], (8, 8), False),
        (["[0:4]"], ["[:, 0:4]"], (4, 4), True),
        (["odd"], ["odd"], None, True),
        (["odd"], [""], (4,), None),
        (["", "[0:2]"], [""], None, True),
        (["every third"], ["[0:2]"], (4,), None),
        (["[x]"], ["[0:2]"], (4,), None),
        (["[2:2]"], ["[0:2]"], (4,), None),
        (["[::1]"], [""], None, True),
    ],
    ids=str,
)
def test_parts_cover(one, other, shape, same):
    assert same_part(coverage(one), coverage(other), shape) is same
    assert same_part(coverage(other), coverage(one), shape) is same


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1), st.data())
def test_slices_cover_what_their_places_cover(slices, data):
    ranges = [(a, min(a + n, 6)) for a, n in slices]
    places = {p for a, b in ranges for p in range(a, b)}
    cover = coverage(f"[{a}:{b}]" for a, b in ranges)
    assert same_part(cover, coverage([f"[{p}]" for p in places]), None) is True
    assert same_part(cover, coverage([""]), (6,)) is (places == set(range(6)))
    some = data.draw(st.sets(st.integers(0, 5), min_size=1))
    assert same_part(cover, coverage([f"[{p}]" for p in some]), None) is (places == some)

"""Buffers and rotary frequencies: what moved is no difference, what changed is."""

import numpy as np
import pytest

from samebits.compare.signals import compare
from samebits.records.capture import Skip
from tests.support.builders import Memory, buffer, frequencies, nudged, sound, values

H1, H2 = values(4, seed=1), values(4, seed=2)


def judged(memory, signal, mine, theirs, **more):
    sides = [sound(memory, **{signal: side}, **more) for side in (mine, theirs)]
    signals = [
        next(s for s in compare(*pair, memory) if s.signal == signal)
        for pair in (sides, sides[::-1])
    ]
    assert signals[0].outcome == signals[1].outcome
    return signals[0]


def buffers(memory, **arrays):
    return {name.replace("__", "."): buffer(memory, array) for name, array in arrays.items()}


def test_the_same_buffers(memory):
    side = buffers(memory, mask=H1, other=H2)
    assert judged(memory, "buffers", side, side).outcome == "identical"


def test_same_name_other_bytes(memory):
    found = judged(
        memory, "buffers", buffers(memory, mask=H1), buffers(memory, mask=nudged(H1, 2, by=0))
    )
    assert (found.outcome, found.n_differ) == ("differs", 1)
    assert found.items[0].metrics.max_ulp == 1


@pytest.mark.parametrize(
    "change", [lambda a: a[:2], lambda a: a.astype(np.float16)], ids=["shape", "dtype"]
)
def test_same_name_other_shape_or_dtype(memory, change):
    found = judged(memory, "buffers", buffers(memory, mask=H1), buffers(memory, mask=change(H1)))
    assert found.outcome == "differs"


def test_a_renamed_buffer_is_the_same(memory):
    found = judged(memory, "buffers", buffers(memory, mask=H1), buffers(memory, model__mask=H1))
    assert found.outcome == "identical"
    assert "model.mask" in found.items[0].note


def test_a_buffer_of_each_layer_that_became_one(memory):
    many = buffers(memory, l0__cos=H1, l1__cos=H1, l2__cos=H1)
    assert judged(memory, "buffers", many, buffers(memory, cos=H1)).outcome == "identical"


def test_a_buffer_on_one_side_only_is_told_and_is_no_difference(memory):
    found = judged(memory, "buffers", buffers(memory, mask=H1, more=H2), buffers(memory, mask=H1))
    assert (found.outcome, found.n_items) == ("identical", 1)
    assert found.items[0].outcome == "only in reference"
    assert found.items[0].excused


def test_buffers_of_which_none_pairs_are_not_identical(memory):
    found = judged(memory, "buffers", buffers(memory, a=H1), buffers(memory, b=H2))
    assert (found.outcome, found.excused) == ("not compared", True)
    assert found.note == "1 only in the reference, 1 only in the candidate"


def test_no_buffers_on_either_side(memory):
    found = judged(memory, "buffers", {}, {})
    assert (found.outcome, found.excused) == ("not compared", True)


def test_frequencies_and_weights_are_judged_elsewhere(memory):
    one = buffers(memory, mask=H1, rotary__inv_freq=H1, rotary__original_inv_freq=H1)
    other = buffers(memory, mask=H1, rotary__inv_freq=H2, rotary__original_inv_freq=H2)
    one["bn"] = buffer(memory, H1, persistent=True)
    other["bn"] = buffer(memory, H2, persistent=True)
    found = judged(memory, "buffers", one, other)
    assert (found.outcome, found.n_items) == ("identical", 1)


def freqs(memory, **arrays):
    return {
        name.replace("__", "."): array
        if not isinstance(array, np.ndarray)
        else frequencies(memory, array)
        for name, array in arrays.items()
    }


def test_the_same_frequencies(memory):
    side = freqs(memory, model__rotary_emb__inv_freq=H1)
    assert judged(memory, "inv_freq", side, side).outcome == "identical"


def test_other_frequencies_are_measured(memory):
    found = judged(
        memory,
        "inv_freq",
        freqs(memory, rotary_emb__inv_freq=H1),
        freqs(memory, model__rotary_emb__inv_freq=nudged(H1, 0, by=0)),
    )
    assert (found.outcome, found.n_differ) == ("differs", 1)
    assert found.items[0].metrics.max_ulp == 1


def test_modules_of_each_layer_that_became_one(memory):
    many = freqs(memory, **{f"layers__{i}__rotary_emb__inv_freq": H1 for i in range(4)})
    one = freqs(memory, model__rotary_emb__inv_freq=H1)
    assert judged(memory, "inv_freq", many, one).outcome == "identical"
    changed = freqs(memory, model__rotary_emb__inv_freq=H2)
    found = judged(memory, "inv_freq", many, changed)
    assert (found.outcome, found.n_differ) == ("differs", 1)


def test_one_of_many_that_changed_is_found(memory):
    many = {f"layers__{i}__rotary_emb__inv_freq": H1 for i in range(4)}
    changed = many | {"layers__2__rotary_emb__inv_freq": H2}
    assert judged(memory, "inv_freq", freqs(memory, **many), freqs(memory, **changed)).n_differ == 1


def test_local_and_global_roles_pair_under_their_new_names(memory):
    old = freqs(memory, rotary_emb__inv_freq=H1, rotary_emb_local__inv_freq=H2)
    new = {"rotary_emb__full_attention_inv_freq": H1, "rotary_emb__sliding_attention_inv_freq": H2}
    assert judged(memory, "inv_freq", old, freqs(memory, **new)).outcome == "identical"
    swapped = dict(zip(new, (H2, H1), strict=True))
    found = judged(memory, "inv_freq", old, freqs(memory, **swapped))
    assert (found.outcome, found.n_differ) == ("differs", 2)


def test_roles_that_only_the_name_changed(memory):
    old = freqs(memory, rotary_emb__inv_freq=H1)
    new = freqs(memory, rotary_emb__sliding_attention_inv_freq=H1)
    assert judged(memory, "inv_freq", old, new).outcome == "identical"


def test_more_frequencies_on_one_side_are_told(memory):
    old = freqs(memory, rotary_emb__inv_freq=H1)
    new = freqs(memory, rotary_emb__inv_freq=H1, vision__rotary_pos_emb__inv_freq=H2)
    found = judged(memory, "inv_freq", old, new)
    assert (found.outcome, found.items[0].outcome) == ("identical", "only here")


def test_original_copies_do_not_count(memory):
    old = freqs(memory, r__inv_freq=H1)
    new = freqs(memory, r__inv_freq=H1, r__original_inv_freq=H2)
    found = judged(memory, "inv_freq", old, new)
    assert (found.outcome, found.items) == ("identical", ())


def test_another_scaling_is_a_difference(memory):
    one = freqs(memory, rotary_emb__inv_freq=frequencies(memory, H1, scaling=1.0))
    two = freqs(memory, rotary_emb__inv_freq=frequencies(memory, H1, scaling=1.2))
    found = judged(memory, "inv_freq", one, two)
    assert found.outcome == "differs"
    assert "attention_scaling 1.0 in the reference, 1.2 in the candidate" in found.items[0].note
    moved = freqs(memory, model__rotary_emb__inv_freq=frequencies(memory, H1, scaling=1.2))
    assert judged(memory, "inv_freq", one, moved).outcome == "differs"


def test_a_scaling_that_one_version_does_not_have_is_told(memory):
    one = freqs(memory, rotary_emb__inv_freq=frequencies(memory, H1, scaling=1.0))
    two = freqs(memory, rotary_emb__inv_freq=frequencies(memory, H1, scaling=None))
    found = judged(memory, "inv_freq", one, two)
    assert (found.outcome, len(found.items)) == ("identical", 1)


def test_frequencies_that_one_side_lacks_need_a_reason(memory):
    have = freqs(memory, rotary_emb__inv_freq=H1)
    assert not judged(memory, "inv_freq", have, {}).excused
    assert judged(memory, "inv_freq", have, {}, skips={"inv_freq": "computed on the fly"}).excused
    assert judged(memory, "inv_freq", {}, {}).excused


def unreadable(signal, name, why="plain"):
    what = f"tensor {signal} {name}"
    return Skip(what=what, reason="no bytes", why=why, tensor=name, tensor_of=signal)


def test_a_tensor_without_bytes_is_not_called_the_same(memory):
    for held in (buffers(memory, mask=H1), {}):
        side = sound(memory, buffers=held, skips=[unreadable("buffers", "rows")])
        found = next(s for s in compare(side, side, memory) if s.signal == "buffers")
        assert (found.outcome, found.excused) == ("not compared", False)
        assert found.note == "rows: no bytes"
        empty = sound(memory, buffers=held, skips=[unreadable("buffers", "rows", "meta device")])
        found = next(s for s in compare(empty, empty, memory) if s.signal == "buffers")
        assert found.outcome == ("identical" if held else "not compared")
        assert found.excused == (not held)
        assert "neither side has" not in found.note


def test_a_weight_without_bytes_is_not_called_the_same(memory):
    sides = sound(memory, skips=[unreadable("weights", "packed")]), sound(memory)
    found = next(s for s in compare(*sides, memory) if s.signal == "weights")
    assert (found.outcome, found.excused) == ("not compared", False)


def test_frequencies_that_one_side_writes_in_each_forward_need_no_pair():
    """DeepSeek's code makes them again in the first forward, where 5.x has not written them."""
    memory = Memory()
    name = "model.rotary_emb.inv_freq"
    reference, candidate = (
        sound(
            memory,
            inv_freq={name: frequencies(memory, H1)},
            buffers={name: buffer(memory, H1, unwritten=lost, replaced=replaced)},
        )
        for lost, replaced in ((False, False), (True, True))
    )
    found = next(s for s in compare(reference, candidate, memory) if s.signal == "inv_freq")
    assert (found.outcome, found.excused) == ("not compared", True)
    read = sound(memory, inv_freq={}, buffers={})
    lost = next(s for s in compare(reference, read, memory) if s.signal == "inv_freq")
    assert (lost.outcome, lost.excused) == ("not compared", False)


def test_a_table_of_angles_is_not_compared_with_frequencies(memory):
    table = np.outer(np.arange(4, dtype=np.float32), H1)
    old, new = freqs(memory, rotary__inv_freq=table), freqs(memory, rotary__inv_freq=H1)
    (item,) = judged(memory, "inv_freq", old, new).items
    assert (item.outcome, item.excused) == ("only in reference", True)
    assert "a different quantity" in item.note
    longer = freqs(memory, rotary__inv_freq=np.concatenate([H1, H1]))
    assert judged(memory, "inv_freq", longer, new).outcome == "differs"

"""The hashes of a run, and what of them is not as recorded."""

from samebits.gate.observations import count, hashes, mismatches, unobserved
from samebits.records.lock import SHORT
from tests.support.builders import buffer, decoded, forward, layers, sound, values


def test_every_signal_that_makes_a_verdict_is_recorded(memory):
    observed = hashes(sound(memory))
    names = [
        "inputs",
        "weights",
        "buffers",
        "inv_freq",
        "hidden_states",
        "logits",
        "decode",
        "greedy",
    ]
    assert [name for name in observed if name in names] == names
    assert count(observed) == sum(map(len, observed.values()))
    assert all(len(hash) == SHORT for of in observed.values() for hash in of.values())
    logits = sound(memory).signals.forward["short"].logits.hash
    assert observed["logits"]["short"] == logits[:SHORT]


def test_the_same_bits_are_no_mismatch(memory):
    assert mismatches(hashes(sound(memory)), sound(memory, "5.x")) == []


def test_mismatches_are_in_the_order_of_the_flow_of_data(memory):
    hidden = [values(1, 6, 4, seed=0), values(1, 6, 4, seed=99), values(1, 6, 4, seed=98)]
    changed = sound(
        memory,
        forward={"short": forward(memory, hidden=layers(memory, *hidden), logits=values(1, 6, 8))},
    )
    first, *more = mismatches(hashes(sound(memory)), changed)
    assert (first.signal, first.kind) == ("hidden_states", "differs")
    assert (first.subject.prompt, first.subject.layer) == ("short", 1)
    assert first.name == "short · layer 1 (model.layers.0)"
    assert [mismatch.signal for mismatch in more] == ["hidden_states", "logits"]


def test_a_buffer_that_only_this_side_has_is_not_the_first_mismatch(memory):
    buffers = sound(memory).signals.buffers
    more = buffers | {"a.original_inv_freq": buffer(memory, values(2, seed=3))}
    logits = {"short": forward(memory, logits=values(1, 6, 8, seed=77))}
    changed = sound(memory, buffers=more, forward=logits)
    *others, last = mismatches(hashes(sound(memory)), changed)
    assert others
    assert all(mismatch.kind != "only here" for mismatch in others)
    assert (last.signal, last.name, last.kind) == ("buffers", "a.original_inv_freq", "only here")


def test_other_tokens_of_equal_logits_are_a_mismatch(memory):
    changed = sound(memory, greedy={"short": decoded(memory, 3, 1, 5)})
    assert {m.signal for m in mismatches(hashes(sound(memory)), changed)} == {"decode", "greedy"}


def test_names_of_one_side_only(memory):
    renamed = [values(1, 6, 4, seed=seed) for seed in range(3)]
    facts = forward(
        memory,
        hidden=layers(memory, *renamed, names=["embeddings", "layers.0", "layers.1"]),
        logits=values(1, 6, 8, seed=16),
    )
    kinds = [
        m.kind for m in mismatches(hashes(sound(memory)), sound(memory, forward={"short": facts}))
    ]
    assert kinds == ["only recorded"] * 2 + ["only here"] * 2


def test_a_signal_that_the_record_lacks_is_no_mismatch(memory):
    recorded = {"logits": hashes(sound(memory))["logits"]}
    assert mismatches(recorded, sound(memory, greedy={"short": decoded(memory, 9)})) == []


def test_a_signal_that_was_not_observed_is_missing_and_no_mismatch(memory):
    recorded = hashes(sound(memory))
    bare = sound(memory, greedy=None)
    assert mismatches(recorded, bare) == []
    assert unobserved(recorded, bare) == ["decode", "greedy"]


def test_a_signal_of_another_samebits_is_passed_over(memory):
    recorded = hashes(sound(memory)) | {"auras": {"short": "0" * SHORT}}
    assert mismatches(recorded, sound(memory)) == []
    assert unobserved(recorded, sound(memory)) == []

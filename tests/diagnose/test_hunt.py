"""The hunt: a suspect is ruled out by equal bytes alone, and ruled in only where it begins."""

import numpy as np

from samebits.compare.signals import compare
from samebits.diagnose.hunt import steps
from samebits.records.capture import AttentionCall, GreedyFacts
from samebits.records.code import CodeSignal, FunctionFact
from samebits.records.evidence import AttentionTensors, EvidenceSignal, PromptEvidence, RotaryTable
from tests.support.builders import (
    Memory,
    attention,
    buffer,
    call,
    forward,
    frequencies,
    layers,
    nudged,
    sound,
    sound_signals,
    step_logits,
    values,
    weight,
    weights_signal,
    with_outputs,
)

BATCH, HEADS, POSITIONS, WIDTH = 1, 4, 6, 16
QKV = {part: values(BATCH, HEADS, POSITIONS, WIDTH, seed=20 + i) for i, part in enumerate("qkv")}
LATER = {part: values(BATCH, HEADS, POSITIONS, WIDTH, seed=30 + i) for i, part in enumerate("qkv")}
COS, SIN = (values(BATCH, POSITIONS, WIDTH, seed=seed) for seed in (40, 41))
OUTPUTS = [values(BATCH, HEADS, POSITIONS, WIDTH, seed=seed) for seed in (50, 51)]
NAMES = {"q": "query", "k": "key", "v": "value"}
HIDDEN = [values(1, 6, 4, seed=seed) for seed in range(3)]
LOGITS = values(1, 6, 8, seed=16)


def behind(array):
    """Return other bytes from position 1 on, as a rope that turns nothing makes of them."""
    other = array.copy()
    other[..., 1:, :] = np.nextafter(other[..., 1:, :], np.float32(9))
    return other


def observed(memory, *, qkv=QKV, outputs=OUTPUTS, cos=COS, sin=SIN, eager=LOGITS, later=LATER):
    tables = tuple(
        RotaryTable(module="model.rotary_emb", part=part, ref=memory.put(array))
        for part, array in (("cos", cos), ("sin", sin))
        if array is not None
    )
    calls = tuple(
        AttentionTensors(
            module=f"model.layers.{i}.self_attn",
            tensors={NAMES[p]: memory.put(a) for p, a in parts.items()}
            | {"output": memory.put(outputs[i])},
        )
        for i, parts in enumerate((qkv, later))
    )
    seen = PromptEvidence(
        rotary=tables,
        attention=calls,
        eager_logits=None if eager is None else memory.put(eager),
    )
    return EvidenceSignal(prompts={"short": seen})


def code(**digests):
    facts = {
        f"modeling_tiny:{name}": FunctionFact(
            file="modeling_tiny.py", line=1, own=name.startswith("Tiny"), digest=digest
        )
        for name, digest in digests.items()
    }
    return CodeSignal(files={"modeling_tiny.py": "f" * 64}, executed=facts)


def ran(memory, stack="4.48", *, hidden=HIDDEN, logits=LOGITS, **changed):
    fed = forward(memory, hidden=layers(memory, *hidden), logits=logits)
    signals = {
        "forward": {"short": fed},
        "evidence": observed(memory),
        "code": code(Tiny_forward="1", library="2"),
    }
    return sound(memory, stack, **signals | changed)


def hunted(reference, candidate, memory):
    found = steps(reference, candidate, compare(reference, candidate, memory), memory)
    return {step.suspect: step for step in found}


def statuses(found):
    return {suspect: step.status for suspect, step in found.items()}


def differing_end():
    """Return what every difference in a forward ends in."""
    return {"hidden": [HIDDEN[0], *(nudged(h, 0, 1, 0) for h in HIDDEN[1:])]} | {
        "logits": nudged(LOGITS, 0, 1, 0)
    }


def test_nothing_differs_and_there_is_no_hunt(memory):
    assert hunted(ran(memory), ran(memory, "5.x"), memory) == {}


def test_lost_frequencies_read_like_the_hunt_by_hand(memory):
    zeros = np.zeros(2, np.float32)
    turned = {part: behind(QKV[part]) for part in "qk"} | {"v": QKV["v"]}
    evidence = observed(
        memory,
        qkv=turned,
        cos=behind(COS),
        sin=behind(SIN),
        outputs=[behind(o) for o in OUTPUTS],
        eager=nudged(LOGITS, 0, 2, 0),
        later={p: behind(a) for p, a in LATER.items()},
    )
    found = hunted(
        ran(memory),
        ran(
            memory,
            "5.x",
            inv_freq={"model.rotary_emb.inv_freq": frequencies(memory, zeros)},
            buffers=sound_signals(memory)["buffers"]
            | {"model.rotary_emb.inv_freq": buffer(memory, zeros, unwritten=True)},
            evidence=evidence,
            **differing_end(),
        ),
        memory,
    )
    assert statuses(found) == {
        "the model's own code": "ruled out",
        "transformers' code": "ruled out",
        "config": "ruled out",
        "inputs": "ruled out",
        "weights": "ruled out",
        "buffers": "ruled out",
        "inv_freq": "ruled in",
        "embeddings": "ruled out",
        "rope's cos and sin": "follows",
        "query, key and value": "follows",
        "attention": "follows",
        "attention forced to eager": "ruled out",
        "layers": "follows",
        "logits": "follows",
        "decoding through the cache": "ruled out",
    }
    assert "0, 0 in the candidate" in found["inv_freq"].what
    assert "never written in this cell" in found["inv_freq"].what
    assert "the same at position 0, different bytes from position 1 on" in (
        found["rope's cos and sin"].what
    )
    entering = found["query, key and value"].what
    assert "query and key: the same at position 0, different bytes from position 1 on" in entering
    assert "value: the same" in entering
    assert "1 file, the same bytes in both" in found["the model's own code"].what


def by_hand(index):
    fused = call(index)
    changed = {"sdpa": None, "aten": ("aten::bmm", "aten::_softmax"), "function": "eager"}
    return AttentionCall(**fused.model_dump() | changed)


def test_the_same_query_key_and_value_rule_attention_in(memory):
    evidence = observed(
        memory,
        outputs=[nudged(o, 0, 0, 0, 0) for o in OUTPUTS],
        later={p: nudged(a, 0, 0, 0, 0) for p, a in LATER.items()},
    )
    found = hunted(
        ran(memory, attention=attention(by_hand(0), by_hand(1))),
        ran(memory, "5.x", evidence=evidence, **differing_end()),
        memory,
    )
    assert found["query, key and value"].status == "follows"
    assert found["query, key and value"].what.startswith("entering model.layers.0.self_attn: query")
    assert found["attention"].status == "ruled in"
    assert "eager → SDPA" in found["attention"].what
    assert found["attention forced to eager"].status == "ruled in"
    assert found["layers"].status == "follows"
    assert found["weights"].status == found["inv_freq"].status == "ruled out"


def test_a_query_scaled_by_hand_before_the_scores_is_the_same_query(memory):
    scaled = {"q": QKV["q"] * np.float32(0.25), "k": QKV["k"], "v": QKV["v"]}
    found = hunted(
        ran(
            memory,
            attention=attention(by_hand(0), by_hand(1)),
            evidence=observed(memory, qkv=scaled),
        ),
        ran(
            memory,
            "5.x",
            evidence=observed(memory, outputs=[nudged(OUTPUTS[0], 0, 0, 0, 0), OUTPUTS[1]]),
            **differing_end(),
        ),
        memory,
    )
    assert found["query, key and value"].status == "ruled out"
    assert "in the reference already multiplied by 0.25" in found["query, key and value"].what
    assert found["attention"].status == "ruled in"


def test_a_query_scaled_by_anything_else_is_another_query(memory):
    scaled = {"q": QKV["q"] * np.float32(0.24), "k": QKV["k"], "v": QKV["v"]}
    found = hunted(
        ran(
            memory,
            attention=attention(by_hand(0), by_hand(1)),
            evidence=observed(memory, qkv=scaled),
        ),
        ran(memory, "5.x", **differing_end()),
        memory,
    )
    assert found["query, key and value"].status == "ruled in"


def test_key_heads_repeated_by_hand_are_the_same_keys(memory):
    few = {"q": QKV["q"], "k": QKV["k"][:, :2], "v": QKV["v"][:, :2]}
    many = few | {p: np.repeat(few[p], 2, axis=1) for p in "kv"}
    evidence = observed(memory, qkv=many, outputs=[nudged(OUTPUTS[0], 0, 0, 0, 0), OUTPUTS[1]])
    found = hunted(
        ran(memory, evidence=observed(memory, qkv=few)),
        ran(memory, "5.x", evidence=evidence, **differing_end()),
        memory,
    )
    assert found["query, key and value"].status == "ruled out"
    many["k"] = nudged(many["k"], 0, 3, 2, 0)
    found = hunted(
        ran(memory, evidence=observed(memory, qkv=few)),
        ran(memory, "5.x", evidence=observed(memory, qkv=many), **differing_end()),
        memory,
    )
    assert found["query, key and value"].status == "ruled in"
    assert (
        "different bytes at 1 of 6 positions, the first is 2" in found["query, key and value"].what
    )


def test_a_layer_whose_attention_gives_the_same_is_where_it_begins(memory):
    found = hunted(
        ran(memory),
        ran(memory, "5.x", evidence=observed(memory, eager=None), **differing_end()),
        memory,
    )
    assert found["attention"].status == "ruled out"
    assert found["layers"].status == "ruled in"
    assert "starts elsewhere in the layer" in found["layers"].what
    assert found["attention forced to eager"].status == "not observed"


def test_logits_that_differ_behind_equal_layers_are_ruled_in(memory):
    found = hunted(ran(memory), ran(memory, "5.x", logits=nudged(LOGITS, 0, 1, 0)), memory)
    assert found["logits"].status == "ruled in"
    assert found["layers"].status == "ruled out"


def test_eager_that_differs_too_rules_nothing_out_while_attention_is_entered_alike(memory):
    evidence = observed(
        memory,
        outputs=[nudged(o, 0, 0, 0, 0) for o in OUTPUTS],
        eager=nudged(LOGITS, 0, 0, 0),
    )
    found = hunted(ran(memory), ran(memory, "5.x", evidence=evidence, **differing_end()), memory)
    assert found["attention forced to eager"].status == "open"


def test_a_changed_weight_is_ruled_in_and_what_it_makes_follows(memory):
    tensors = dict(sound_signals(memory)["weights"].tensors)
    tensors["model.layers.0.q.weight"] = weight(
        memory, nudged(values(4, 4, seed=11), 0, 0), origin="unexplained", stored=True
    )
    changed = {"q": nudged(QKV["q"], 0, 0, 3, 0), "k": QKV["k"], "v": QKV["v"]}
    found = hunted(
        ran(memory),
        ran(
            memory,
            "5.x",
            weights=weights_signal(tensors),
            evidence=observed(memory, qkv=changed),
            **differing_end(),
        ),
        memory,
    )
    assert found["weights"].status == "ruled in"
    assert found["query, key and value"].status == "follows"
    assert "downstream of weights" in found["query, key and value"].what


def test_decoding_alone_rules_nothing_of_a_forward_out(memory):
    other = nudged(step_logits(3, 1, 4), 2, 0)
    facts = sound_signals(memory)["greedy"]["short"]
    greedy = GreedyFacts(ids=facts.ids, top2=facts.top2, logits=memory.put(other))
    found = hunted(ran(memory), ran(memory, "5.x", greedy={"short": greedy}), memory)
    assert found["decoding through the cache"].status == "ruled in"
    assert found["logits"].status == "ruled out"
    assert found["weights"].status == "ruled out"
    for suspect in ("attention", "query, key and value", "rope's cos and sin", "layers"):
        assert found[suspect].status == "not observed", suspect
        assert "only decoding differs" in found[suspect].what


def test_nothing_is_ruled_out_that_was_not_observed(memory):
    found = hunted(sound(memory), sound(memory, "5.x", forward={"short": _forward(memory)}), memory)
    for suspect in ("rope's cos and sin", "query, key and value", "attention"):
        assert found[suspect].status == "not observed", suspect
    assert found["transformers' code"].status == "not observed"
    assert found["the model's own code"].status == "not observed"


def _forward(memory):
    end = differing_end()
    return forward(memory, hidden=layers(memory, *end["hidden"]), logits=end["logits"])


def test_values_that_were_not_kept_rule_nothing_out(memory):
    other = Memory()
    few = {p: a[:, :2] for p, a in QKV.items()}
    reference = ran(memory, evidence=observed(other, qkv=few))
    candidate = ran(memory, "5.x", evidence=observed(other), **differing_end())
    found = hunted(reference, candidate, memory)
    assert found["query, key and value"].status == "open"


def test_other_files_of_the_model_are_ruled_in(memory):
    mine = code(Tiny_forward="1")
    other = mine.model_copy(update={"files": {"modeling_tiny.py": "0" * 64}})
    found = hunted(ran(memory), ran(memory, "5.x", code=other, **differing_end()), memory)
    assert found["the model's own code"].status == "ruled in"


def test_own_code_that_asks_for_the_version_is_not_ruled_out(memory):
    asking = code(Tiny_forward="1").model_copy(update={"reads_version": True})
    found = hunted(ran(memory), ran(memory, "5.x", code=asking, **differing_end()), memory)
    assert found["the model's own code"].status == "open"


def test_own_code_that_takes_another_way_is_not_ruled_out(memory):
    here = code(Tiny_forward="1", Tiny_new_way="2")
    found = hunted(ran(memory), ran(memory, "5.x", code=here, **differing_end()), memory)
    assert found["the model's own code"].status == "open"
    assert "only here: modeling_tiny:Tiny_new_way" in found["the model's own code"].what


def test_a_function_of_transformers_with_other_source_is_named(memory):
    here = code(Tiny_forward="1", library="3", added="4")
    found = hunted(ran(memory), ran(memory, "5.x", code=here, **differing_end()), memory)
    assert found["transformers' code"].status == "open"
    assert "different source: modeling_tiny:library" in found["transformers' code"].what
    assert "only here: modeling_tiny:added" in found["transformers' code"].what


def test_a_config_value_that_changed_is_named_and_decides_nothing(memory):
    config = {"hidden_size": 5, "new": 1, "rope": {"theta": 10000.0}}
    found = hunted(ran(memory), ran(memory, "5.x", config=config, **differing_end()), memory)
    assert found["config"].status == "open"
    assert found["config"].what == "different values: hidden_size; 1 field on one side only"


def test_padding_positions_of_evidence_count_for_nothing(memory):
    """Left padding of row 0: its positions 0 and 1 may hold anything."""
    ranges = ((2, 6), (0, 6))
    cells = []
    for changed in (False, True):
        query = values(2, HEADS, POSITIONS, WIDTH, seed=60)
        if changed:
            query = nudged(query, 0, 1, 1, 0)
        seen = PromptEvidence(
            attention=(
                AttentionTensors(
                    module="model.layers.0.self_attn",
                    tensors={p: memory.put(query) for p in ("query", "key", "value", "output")},
                ),
            )
        )
        logits = values(2, 6, 8, seed=61)
        fed = forward(
            memory,
            ids=np.zeros((2, 6)),
            hidden=layers(memory, *(values(2, 6, 4, seed=s) for s in (1, 2))),
            logits=nudged(logits, 1, 3, 0) if changed else logits,
            real_rows=ranges,
        )
        evidence = EvidenceSignal(prompts={"short": seen})
        cells.append(sound(memory, forward={"short": fed}, evidence=evidence))
    found = hunted(*cells, memory)
    assert found["query, key and value"].status == "ruled out"
    assert found["attention"].status == "ruled out"
    assert "the same in real rows" in found["query, key and value"].what


def test_a_rotary_table_per_layer_is_the_same_as_one_for_all(memory):
    many = observed(memory)
    (prompt,) = many.prompts.values()
    lone = RotaryTable(module="layers.0.rotary", part="cos", ref=memory.put(COS[0]))
    tables = (lone, *(t for t in prompt.rotary if t.part == "sin"))
    other = EvidenceSignal(prompts={"short": prompt.model_copy(update={"rotary": tables})})
    found = hunted(ran(memory), ran(memory, "5.x", evidence=other, **differing_end()), memory)
    assert found["rope's cos and sin"].status == "ruled out"


def test_outputs_that_alone_differ_are_ruled_in_and_the_layers_out(memory):
    reference = with_outputs(memory, ran(memory), pooler=values(1, 4, seed=9))
    run = with_outputs(memory, ran(memory, "5.x"), pooler=values(1, 6, seed=9))
    hunt = hunted(reference, run, memory)
    assert hunt["other outputs"].status == "ruled in"
    assert "[1, 4] in the reference, [1, 6] in the candidate" in hunt["other outputs"].what
    assert (hunt["layers"].status, hunt["logits"].status) == ("ruled out", "ruled out")


def test_outputs_that_follow_from_the_layers_are_not_ruled_in(memory):
    reference = with_outputs(memory, ran(memory), pooler=values(1, 4, seed=9))
    run = with_outputs(memory, ran(memory, "5.x", **differing_end()), pooler=values(1, 4, seed=8))
    hunt = hunted(reference, run, memory)
    assert hunt["other outputs"].status == "follows"
    assert hunt["layers"].status == "ruled in"


def test_outputs_that_are_the_same_are_ruled_out(memory):
    pooler = values(1, 4, seed=9)
    reference = with_outputs(memory, ran(memory), pooler=pooler)
    run = with_outputs(memory, ran(memory, "5.x", **differing_end()), pooler=pooler)
    assert hunted(reference, run, memory)["other outputs"].status == "ruled out"

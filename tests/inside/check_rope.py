"""probe_rope: the closed formulas are transformers' own to within float32, and an ulp shows."""

import probe_rope
import transformers

KINDS = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + i / 10 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
        "original_max_position_embeddings": 32,
        "factor": 4.0,
    },
}


def model(scaling):
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        rope_theta=5000.0,
        rope_scaling=scaling,
        max_position_embeddings=128,
    )
    return transformers.LlamaForCausalLM(config)


class Keeper:
    def ref(self, tensor):
        return {"hash": ""}


def facts(model):
    (found,) = probe_rope.inv_freq(model, Keeper(), None).values()
    return found


def test_formulas_agree_with_the_release_within_their_bound():
    for kind, scaling in KINDS.items():
        found = facts(model(dict(scaling) if scaling else None))
        assert found["rope_type"] == kind
        formula = found["formula"]
        assert formula["max_ulp"] is not None, (kind, formula)
        assert formula["max_ulp"] < formula["bound_ulp"], (kind, formula)


def test_4_48_reads_the_wrong_length_for_yarn_and_is_told_so():
    # its _compute_yarn_parameters takes max_position_embeddings where the paper, and every
    # later release, takes original_max_position_embeddings
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    formula = facts(model(scaling))["formula"]
    old = transformers.__version__.startswith("4.48.")
    assert (formula["max_ulp"] > formula["bound_ulp"]) == old, formula


def test_a_wrong_frequency_is_far_off_the_formula():
    built = model(None)
    built.model.rotary_emb.inv_freq[3] *= 1.001
    formula = facts(built)["formula"]
    assert formula["max_ulp"] > 100 > formula["bound_ulp"]


def test_junk_has_no_distance_but_is_compared():
    built = model(None)
    built.model.rotary_emb.inv_freq.fill_(float("nan"))
    assert facts(built)["formula"]["max_ulp"] is None

"""A smaller config keeps what a code path depends on: heads, windows, kinds of layers, top-k."""

import copy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.model import shrink

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008],
    "pad_token_id": None,
}
KEPT = (
    "head_dim",
    "rope_scaling",
    "rms_norm_eps",
    "tie_word_embeddings",
    "max_position_embeddings",
    "sliding_window",
    "num_experts_per_tok",
    "n_group",
    "mamba_d_head",
)


def plans(config, kinds=None):
    kinds = kinds or ["layer"] * config["num_hidden_layers"]
    before = copy.deepcopy(config)
    made = [plan.config for plan in shrink.plans(config, {len(kinds): shrink.kept_layers(kinds)})]
    assert config == before
    for name in KEPT:
        assert all(plan.get(name) == config.get(name) for plan in made)
    return made


def test_a_llama_keeps_its_heads_dimension_and_ratio():
    apart, together, shorter = plans(LLAMA)
    assert (apart["hidden_size"], apart["intermediate_size"]) == (64, 224)
    assert (apart["num_attention_heads"], apart["num_key_value_heads"]) == (8, 2)
    assert together["hidden_size"] == 128 * together["num_attention_heads"]
    assert together["num_attention_heads"] == 4 * together["num_key_value_heads"]
    assert (shorter["hidden_size"], shorter["num_attention_heads"]) == (4096, 32)
    assert {plan["num_hidden_layers"] for plan in (apart, together, shorter)} == {2}


def test_special_tokens_are_in_the_new_vocabulary_and_stay_apart():
    made = plans(LLAMA)[0]
    special = [made["bos_token_id"], *made["eos_token_id"]]
    assert len(set(special)) == 3
    assert all(0 < token < 10 for token in special)  # seeded ids begin at 10
    assert made["pad_token_id"] is None


def test_a_small_vocabulary_keeps_its_special_tokens():
    made = plans(LLAMA | {"vocab_size": 300, "bos_token_id": 299, "eos_token_id": 298})[0]
    assert (made["vocab_size"], made["bos_token_id"], made["eos_token_id"]) == (300, 299, 298)


def test_a_head_dimension_that_follows_from_the_width_is_named():
    config = {name: value for name, value in LLAMA.items() if name != "head_dim"}
    apart = next(shrink.plans(config, {32: (0, 1)})).config
    assert (apart["head_dim"], apart["hidden_size"]) == (128, 64)


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        ("aaaa", (0, 1)),
        ("aaab", (0, 1, 2, 3)),
        ("a", (0,)),
        ("a" * 9 + "b", (0, 9)),
        ("b" * 9 + "ac", (0, 9, 10)),
    ],
)
def test_every_kind_of_layer_is_kept_in_its_order(kinds, kept):
    assert shrink.kept_layers(kinds) == kept
    order = list(dict.fromkeys(kinds))
    assert list(dict.fromkeys(kinds[index] for index in kept)) == order


def test_lists_of_layers_and_of_their_indices_follow():
    types = ["sliding"] * 9 + ["full"] + ["sliding"] * 9 + ["full"]
    config = LLAMA | {
        "num_hidden_layers": 20,
        "layer_types": types,
        "sliding_window": 4096,
        "mlp_only_layers": [9, 19],
        "first_k_dense_replace": 9,
        "num_kv_shared_layers": 11,
    }
    made = plans(config, types)[0]
    assert made["layer_types"] == ["sliding", "full"]
    assert made["mlp_only_layers"] == [1]
    assert made["first_k_dense_replace"] == 1
    assert made["num_kv_shared_layers"] == 1


def test_experts_stay_more_than_a_token_takes_and_divide_into_their_groups():
    config = LLAMA | {"n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8}
    made = plans(config | {"topk_group": 4, "moe_intermediate_size": 2048})[0]
    assert (made["n_routed_experts"], made["moe_intermediate_size"]) == (16, 32)
    assert (
        plans(LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2, "top_k": 50})[0][
            "num_local_experts"
        ]
        == 4
    )


def test_the_heads_of_a_state_space_share_the_width():
    config = LLAMA | {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_expand": 2}
    for made in plans(config | {"mamba_n_groups": 1}):
        assert made["mamba_n_heads"] * 64 == 2 * made["hidden_size"]


def test_a_nested_text_part_is_the_one_that_shrinks():
    vision = {"model_type": "v", "hidden_size": 1280, "depth": 32, "out_hidden_size": 4096}
    config = {"model_type": "vl", "text_config": LLAMA, "vision_config": vision}
    made = next(shrink.plans(config, {32: (0, 1)})).config
    assert made["text_config"]["hidden_size"] == 64
    assert made["vision_config"] == vision | {"depth": 2, "out_hidden_size": 64}


def test_a_tower_whose_width_follows_from_its_name_keeps_it():
    """Gemma 3n's has a vocabulary, and was narrowed as a text: no image was fed."""
    tower = {"model_type": "v", "hidden_size": 2048, "vocab_size": 128, "model_args": None}
    made = next(shrink.plans({"model_type": "vl", "vision_config": tower}, {})).config
    assert made["vision_config"]["hidden_size"] == 2048
    tower.pop("model_args")
    made = next(shrink.plans({"model_type": "vl", "vision_config": tower}, {})).config
    assert made["vision_config"]["hidden_size"] < 2048


def test_logits_of_fewer_tokens_than_the_vocabulary_has_stay_fewer():
    """Inkling 2 makes the rest negative infinity: of a vocabulary smaller than its logits it makes no model."""
    made = plans(LLAMA | {"unpadded_vocab_size": LLAMA["vocab_size"] - 50})[0]
    assert 10 < made["unpadded_vocab_size"] < made["vocab_size"]


def test_a_narrow_inner_size_is_a_multiple_of_four():
    """Products of experts refuse 58 columns of float32: their rows are no whole groups of 16 bytes."""
    apart = plans(LLAMA | {"intermediate_size": 58 * 64})[0]
    assert apart["intermediate_size"] == 56
    assert plans(LLAMA | {"intermediate_size": 60 * 64})[0]["intermediate_size"] == 60

"""Configs divided by one number."""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

import pytest
from samebits_probe.model import scale, shrink

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 2048,
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "eos_token_id": 2,
    "sliding_window": 4096,
}
VISION: dict[str, Any] = {
    "model_type": "vit",
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
}


def first(config: dict[str, Any]) -> dict[str, Any]:
    return next(scale.plans(config)).config


def test_widths_are_divided_and_what_ties_them_stays() -> None:
    small = first(LLAMA)
    assert small["hidden_size"] == 4096 // 32
    assert small["intermediate_size"] == 11008 // 32
    assert small["num_attention_heads"] == 8
    assert small["hidden_size"] % small["num_attention_heads"] == 0
    assert small["num_hidden_layers"] == 3


def test_a_head_dimension_that_is_named_goes_with_its_heads() -> None:
    small = first(LLAMA | {"head_dim": 128})
    assert small["head_dim"] * small["num_attention_heads"] == small["hidden_size"]


@pytest.mark.parametrize("plan", range(8))
def test_the_product_holds_in_every_plan(plan: int) -> None:
    small = [*scale.plans(LLAMA | {"head_dim": 128})][plan].config
    assert small["head_dim"] * small["num_attention_heads"] == small["hidden_size"]


def test_the_window_is_shorter_than_the_prompt_past_it() -> None:
    assert first(LLAMA)["sliding_window"] < 40


def test_every_kind_of_layer_stays() -> None:
    kinds = [*["sliding_attention"] * 5, "full_attention"] * 4
    small = first(LLAMA | {"num_hidden_layers": 24, "layer_types": kinds})
    assert set(small["layer_types"]) == set(kinds)
    assert len(small["layer_types"]) == small["num_hidden_layers"] < 9


def test_stages_stay_and_have_at_most_two_layers() -> None:
    staged = {
        "model_type": "swin",
        "embed_dim": 96,
        "depths": [2, 2, 6, 2],
        "num_heads": [3, 6, 12, 24],
    }
    small = first(staged | {"num_layers": 4})
    assert small["depths"] == [2, 2, 2, 2]
    assert small["num_layers"] == 4
    assert small["num_heads"] == [3, 6, 12, 24]


def test_an_offset_stays_below_its_period() -> None:
    small = first(LLAMA | {"attn_layer_period": 8, "attn_layer_offset": 4})
    assert (small["attn_layer_period"], small["attn_layer_offset"]) == (2, 0)


def test_numbers_of_blocks_name_blocks_of_the_same_stages() -> None:
    """Blocks 5, 7 and 9 are of the third stage: behind its first block, which pools. SAM 2 has no pooling in them."""
    stages = {"blocks_per_stage": [1, 2, 7, 2], "global_attention_blocks": [5, 7, 9]}
    small = first(VISION | stages)
    assert small["blocks_per_stage"] == [1, 2, 2, 2]
    assert small["global_attention_blocks"] == [4]


def test_images_stay_whole_numbers_of_patches_in_all_parts() -> None:
    config = {"model_type": "llava", "vision_config": VISION, "text_config": LLAMA}
    small = first(config)["vision_config"]
    assert small["image_size"] == 112
    assert small["image_size"] % small["patch_size"] == 0
    assert small["num_channels"] == 3


def test_an_image_of_an_uneven_number_of_patches_is_made_small_too() -> None:
    """Pixtral's default has 110 patches of 14 pixels on a side: 12,100 of them take half a minute."""
    pixtral = VISION | {"image_size": 1540, "patch_size": 14}
    small = first({"vision_config": pixtral, "text_config": LLAMA})["vision_config"]
    assert small["image_size"] == 70


def test_widths_are_multiples_of_what_a_norm_asks_for() -> None:
    """Chameleon's image tokenizer has 128 channels in 32 groups, times a multiplier for each stage."""
    vq = {"base_channels": 128, "channel_multiplier": [1, 1, 2, 2, 4], "num_res_blocks": 2}
    config = LLAMA | {"vq_config": vq}
    for plan in scale.plans(config, 32):
        assert plan.config["vq_config"]["base_channels"] % 32 == 0
        assert plan.config["vq_config"]["channel_multiplier"] == [1, 1, 2, 2, 4]
        assert plan.config["hidden_size"] % 32 == 0
    assert next(scale.plans(config)).config["vq_config"]["base_channels"] % 32


def test_a_config_is_left_as_it_is() -> None:
    before = copy.deepcopy(LLAMA)
    [*scale.plans(LLAMA)]
    scale.with_extras(LLAMA, scale.EXTRAS)
    assert before == LLAMA


def test_extras_move_what_a_default_would_hide() -> None:
    changed = scale.with_extras(LLAMA, scale.EXTRAS)
    assert changed["num_key_value_heads"] == 16
    assert changed["attention_bias"] is True
    assert changed["rope_theta"] == 5000.0
    assert changed["rms_norm_eps"] != LLAMA["rms_norm_eps"]
    assert changed["eos_token_id"] is None


def test_an_end_of_an_encoder_decoder_stays() -> None:
    config = LLAMA | {"decoder_start_token_id": 0}
    assert scale.with_extras(config, scale.EXTRAS)["eos_token_id"] == 2


def test_the_vocabulary_is_larger_than_every_special_id() -> None:
    small = first(LLAMA | {"image_token_id": 31999})
    assert small["image_token_id"] < small["vocab_size"] == shrink._VOCABULARY


def test_a_backbone_keeps_as_many_outputs() -> None:
    stages = ["stem", *(f"stage{number}" for number in range(1, 13))]
    backbone = VISION | {"stage_names": stages, "out_indices": [3, 6, 9, 12]}
    small = first(backbone | {"out_features": ["stage3", "stage6", "stage9", "stage12"]})
    assert small["num_hidden_layers"] == 4
    assert small["out_indices"] == [1, 2, 3, 4]
    assert small["out_features"] == ["stage1", "stage2", "stage3", "stage4"]


def test_what_a_layer_has_of_its_own_goes_with_it() -> None:
    kinds = [*["sliding_attention"] * 5, "full_attention"] * 4
    for kind in (int, str):
        own = {kind(5): {"a": 1}, kind(11): {"a": 2}}
        small = first(LLAMA | {"num_hidden_layers": 24, "layer_types": kinds, "per_layer": own})
        assert small["per_layer"] == {kind(5): {"a": 1}}


def test_a_width_that_does_not_divide_becomes_a_multiple_of_four() -> None:
    assert first(LLAMA | {"moe_intermediate_size": 1407})["moe_intermediate_size"] == 40


def test_layers_whose_outputs_are_used_stay_as_many() -> None:
    small = first(VISION | {"num_hidden_layers": 32, "intermediate_layers_indices": [3, 7, 15, 23]})
    assert small["intermediate_layers_indices"] == [0, 1, 2, 3]
    assert small["num_hidden_layers"] == 4


@pytest.mark.parametrize(("named", "kept"), [([24, 18], [3, 2]), (-9, -3), (-2, -2)])
def test_layers_that_another_part_names_are_there(named: Any, kept: Any) -> None:
    vision = VISION | {"num_hidden_layers": 27}
    small = first({"vision_config": vision, "adapter_config": {"vision_feature_layer": named}})
    assert small["adapter_config"]["vision_feature_layer"] == kept


def test_heads_of_a_tower_keep_halves_that_two_axes_rotate() -> None:
    small = first(VISION | {"hidden_size": 1152, "num_attention_heads": 16})
    assert small["hidden_size"] // small["num_attention_heads"] % 4 == 0


@pytest.mark.parametrize(
    ("vision", "name"),
    [
        (VISION | {"out_hidden_size": 3584}, "out_hidden_size"),
        (VISION | {"embed_dim": 640, "hidden_size": 3584, "spatial_merge_size": 2}, "hidden_size"),
    ],
)
def test_patches_of_an_image_are_as_wide_as_the_tokens_of_the_text(
    vision: dict[str, Any], name: str
) -> None:
    text = LLAMA | {"model_type": "text", "vocab_size": 32000}
    small = first({"text_config": text, "vision_config": vision | {"model_type": "vision"}})
    assert small["vision_config"][name] == small["text_config"]["hidden_size"]


def test_a_tower_of_its_own_width_keeps_it() -> None:
    text = LLAMA | {"model_type": "text", "vocab_size": 32000}
    tower = VISION | {"model_type": "vision", "hidden_size": 1280}
    small = first({"text_config": text, "vision_config": tower})
    assert (
        small["vision_config"]["hidden_size"]
        == first(VISION | {"hidden_size": 1280})["hidden_size"]
    )


def test_a_map_of_numbers_of_patches_has_those_of_the_smaller_image() -> None:
    config: dict[str, Any] = {"vision_config": VISION, "text_config": LLAMA, "label2id": {"A": 1}}
    queries = first(config | {"patch_to_query": {196: 128, 784: 256}})
    vision = queries["vision_config"]
    (patches,) = queries["patch_to_query"]
    assert patches == (vision["image_size"] // vision["patch_size"]) ** 2
    assert queries["patch_to_query"][patches] <= 12
    labels = {"id2label": {1: "one", 2: "two"}}
    assert first(config | labels)["id2label"] == labels["id2label"]


def test_a_width_of_the_text_that_stands_twice_is_one() -> None:
    """Ovis2 has it beside its text_config, with the default of another model."""
    made = first({"hidden_size": 1536, "text_config": {"vocab_size": 512, "hidden_size": 4096}})
    assert made["hidden_size"] == made["text_config"]["hidden_size"]


def test_a_head_rotates_whole_pairs():
    """A quarter of 12 dimensions is a pair and a half, of which releases make different things."""
    neox = LLAMA | {"hidden_size": 6144, "num_attention_heads": 64, "rotary_pct": 0.25}
    first = next(scale.plans(neox)).config
    assert first["hidden_size"] // first["num_attention_heads"] * 0.25 % 2 == 0
    assert first["hidden_size"] < 400
    whole = next(scale.plans(neox | {"rotary_pct": 1.0})).config
    assert whole["hidden_size"] // whole["num_attention_heads"] == 12


def test_each_stage_of_a_vocoder_keeps_channels():
    vocoder = {"model_type": "seamless_m4t", "hidden_size": 1024, "num_attention_heads": 16}
    rates = [8, 8, 2, 2, 2]
    small = first(vocoder | {"upsample_initial_channel": 512, "upsample_rates": rates})
    assert small["upsample_initial_channel"] >> len(rates) >= 1
    assert small["upsample_initial_channel"] < 512


def test_an_image_has_whole_windows_of_patches():
    part = {"image_size": 518, "patch_size": 14, "num_windows": 4}
    (smaller,) = (plan.config for plan in islice(scale.plans({"backbone_config": part}), 1))
    assert smaller["backbone_config"]["image_size"] == 504
    without = {"backbone_config": {"image_size": 518, "patch_size": 14}}
    (smaller,) = (plan.config for plan in islice(scale.plans(without), 1))
    assert smaller["backbone_config"]["image_size"] == 518


def test_outputs_of_layers_that_a_head_takes_are_of_layers_that_stay():
    part = {"num_hidden_layers": 12, "backbone_out_indices": [2, 5, 8, 11]}
    scale.shorten(part)
    assert part == {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}

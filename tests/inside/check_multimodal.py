"""Prompts with an image, a sound or a series, of real classes: shapes, placeholders, and that they enter."""

import json

import torch
import transformers
from check_feed import IMAGE, LLAVA, TEXT, choose
from samebits_probe.model import forks, load, multimodal
from samebits_probe.process.failure import Unknown

PROMPTS = {"short": {"length": 9}}
ROPE = {"type": "mrope", "mrope_section": [1, 1, 2]}
QWEN = {
    **TEXT,
    "num_key_value_heads": 2,
    "rope_scaling": ROPE,
    "vision_config": {
        "depth": 1,
        "embed_dim": 16,
        "hidden_size": 32,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    "image_token_id": 90,
    "video_token_id": 91,
    "vision_start_token_id": 92,
    "vision_end_token_id": 93,
}
AUDIO = {
    "audio_config": {
        "model_type": "qwen2_audio_encoder",
        "num_mel_bins": 8,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "d_model": 16,
        "max_source_positions": 20,
    },
    "text_config": {"model_type": "qwen2", **TEXT, "num_key_value_heads": 2},
    "audio_token_index": 90,
}
SERIES = {
    "prediction_length": 4,
    "context_length": 8,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "lags_sequence": [1, 3],
    "num_time_features": 2,
    "num_static_categorical_features": 1,
    "cardinality": [3],
    "embedding_dimension": [2],
}


def shapes(record, name):
    tensors = record["prompts"][name]["tensors"]
    return {argument: ref["shape"] for argument, ref in tensors.items()}


def model_of(architecture, config):
    torch.manual_seed(0)
    return getattr(transformers, architecture)(config).eval()


def run(architecture, config, feed, name):
    model = model_of(architecture, config)
    fed = feed.inputs(name, None, model)
    with torch.no_grad():
        return fed, model(**fed.kwargs)


def test_llava_has_a_placeholder_for_each_feature_in_every_row():
    config = LLAVA | {"image_token_index": 90, "image_seq_length": 9}
    (record, feed), made = choose("llava", config, "LlavaForConditionalGeneration", PROMPTS)
    assert shapes(record, "image")["pixel_values"] == [1, 3, 24, 24]
    fed, result = run("LlavaForConditionalGeneration", made, feed, "image-padded")
    ids = fed.kwargs["input_ids"]
    assert (ids == 90).sum(1).tolist() == [9, 9]
    assert fed.real_rows == [[0, 18], [4, 18]]
    assert result.logits.shape == (2, 18, 99)
    other = {**fed.kwargs, "pixel_values": fed.kwargs["pixel_values"] + 1}
    with torch.no_grad():
        seen = model_of("LlavaForConditionalGeneration", made)(**other)
    assert not torch.equal(seen.logits, result.logits)


def test_qwen2_vl_has_patches_a_grid_and_the_types_of_tokens_where_a_release_takes_them():
    (record, feed), made = choose("qwen2_vl", QWEN, "Qwen2VLForConditionalGeneration", PROMPTS)
    assert shapes(record, "image-padded")["pixel_values"] == [48, 96]
    assert record["prompts"]["image"]["optional"] == [multimodal.TOKEN_TYPES]
    fed, result = run("Qwen2VLForConditionalGeneration", made, feed, "image")
    ids = fed.kwargs["input_ids"][0].tolist()
    start = ids.index(92)
    assert ids[start : start + 8] == [92, *[90] * 6, 93]
    takes = forks.accepts(model_of("Qwen2VLForConditionalGeneration", made), multimodal.TOKEN_TYPES)
    assert (
        (multimodal.TOKEN_TYPES in fed.kwargs) == takes == (multimodal.TOKEN_TYPES in fed.optional)
    )
    assert result.logits.shape[1] == len(ids)


def test_a_model_that_takes_a_video_says_that_it_gets_none():
    (record, _), _ = choose("qwen2_vl", QWEN, "Qwen2VLForConditionalGeneration", PROMPTS)
    assert "samebits makes no video" in record["prompts"]["video"]["reason"]
    config = LLAVA | {"image_token_index": 90, "image_seq_length": 9}
    (record, _), _ = choose("llava", config, "LlavaForConditionalGeneration", PROMPTS)
    assert "video" not in record["prompts"]


def test_a_sound_has_its_features_and_its_mask():
    (record, feed), made = choose(
        "qwen2_audio", AUDIO, "Qwen2AudioForConditionalGeneration", PROMPTS
    )
    assert shapes(record, "audio")["input_features"] == [1, 8, 40]
    fed, _ = run("Qwen2AudioForConditionalGeneration", made, feed, "audio-padded")
    assert (fed.kwargs["input_ids"] == 90).sum(1).tolist() == [10, 10]


def test_series_are_as_long_as_context_and_lags():
    name = "TimeSeriesTransformerForPrediction"
    (record, feed), made = choose("time_series_transformer", SERIES, name, PROMPTS)
    assert shapes(record, "series") == {
        "past_values": [1, 11],
        "past_time_features": [1, 11, 2],
        "past_observed_mask": [1, 11],
        "future_values": [1, 4],
        "future_time_features": [1, 4, 2],
        "static_categorical_features": [1, 1],
    }
    _, result = run(name, made, feed, "series-batch")
    assert torch.isfinite(result.loss)


def test_a_model_of_text_and_a_model_that_is_given_its_images_get_no_more():
    for kind, config, architecture in (
        ("llama", TEXT, "LlamaForCausalLM"),
        (
            "clip",
            {"text_config": {**TEXT, "max_position_embeddings": 40}, "vision_config": IMAGE},
            "CLIPModel",
        ),
    ):
        (record, _), _ = choose(kind, config, architecture, PROMPTS)
        assert list(record["prompts"]) == ["short"], kind


def test_a_placeholder_that_is_no_token_is_a_reason():
    config = LLAVA | {"image_token_index": 32000}
    (record, _), _ = choose("llava", config, "LlavaForConditionalGeneration", PROMPTS)
    reason = record["prompts"]["image"]["reason"]
    assert reason.endswith(" 32000 is outside of the vocabulary of 99")
    assert "image-padded" not in record["prompts"]


def test_architectures_of_a_nested_config_count_if_they_are_of_the_model():
    config = json.loads(json.dumps(LLAVA))
    config["text_config"]["architectures"] = ["LlavaForConditionalGeneration"]
    (record, _), _ = choose("llava", config, None, PROMPTS)
    assert record["model_class"] == "LlavaForConditionalGeneration"


def test_architectures_of_a_part_are_not_those_of_the_model():
    config = {"text_config": {**TEXT, "architectures": ["CLIPTextModel"]}, "vision_config": IMAGE}
    (record, _), _ = choose("clip", config, None, PROMPTS)
    assert record["model_class"] == "CLIPModel"


def absent(class_here, kinds, **more):
    source = load.Source("nowhere", None, False, "float32", "default", "cpu", chosen_kinds=kinds)
    try:
        load._require_chosen_kinds(class_here, source._replace(**more))
    except Unknown as reason:
        return str(reason)
    return ""


def test_a_class_of_the_same_name_that_takes_other_data_is_another_one():
    llava = transformers.LlavaForConditionalGeneration
    assert "takes images" in absent(llava, ())
    assert "takes images and sounds" in absent(llava, ("images", "sounds"))
    assert "takes no images and no sounds" in absent(transformers.LlamaModel, ("images",))
    assert "chosen for every release takes none" in absent(llava, ())


def test_the_same_class_and_one_that_the_user_names_are_not():
    llava = transformers.LlavaForConditionalGeneration
    assert absent(llava, ("images",)) == absent(transformers.LlamaModel, ()) == ""
    assert absent(llava, None) == absent(transformers.AutoModel, ("images",)) == ""
    assert absent(llava, (), model_class="own:Llava") == ""
    # 5.x renamed its argument image_patches to pixel_values
    assert absent(transformers.FuyuForCausalLM, ("images",)) == ""

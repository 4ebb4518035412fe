"""Prompts with an image, a video, a sound or a series, of real classes: shapes, placeholders, and that they enter."""

import itertools
import json

import torch
import transformers
from check_feed import IMAGE, LLAVA, TEXT, choose
from raising import raised
from samebits_probe.model import choice, forks, load, media_way, refusal, tried
from samebits_probe.model import feed as model_feed
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
FRAMES = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": 4,
    "image_size": 32,
    "out_hidden_size": 32,
    "num_position_embeddings": 64,
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


MLLAMA = {
    "text_config": {
        **TEXT,
        "model_type": "mllama_text_model",
        "vocab_size": 96,
        "num_key_value_heads": 2,
        "cross_attention_layers": [1],
        "rope_scaling": {"rope_type": "default"},
    },
    "vision_config": {
        **IMAGE,
        "model_type": "mllama_vision_model",
        "num_global_layers": 1,
        "attention_heads": 4,
        "max_num_tiles": 2,
        "vision_output_dim": 64,
        "intermediate_layers_indices": [0],
        "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
    },
    "image_token_index": 90,
}
FUYU = {
    **TEXT,
    "text_config": {**TEXT, "model_type": "persimmon"},
    "patch_size": 4,
    "image_token_id": 90,
}
CODES = {
    "embed_dim": 8,
    "latent_channels": 8,
    "base_channels": 32,
    "channel_multiplier": [1, 1],
    "num_res_blocks": 1,
}
CHAMELEON = {
    **TEXT,
    "num_key_value_heads": 2,
    "vocabulary_map": {"<image>": 90, **{f"IMGIMG{chr(65 + i)}Z": 20 + i for i in range(8)}},
    "vq_config": {**CODES, "num_embeddings": 8, "resolution": 32},
}
EMU = {
    "text_config": {**TEXT, "model_type": "emu3_text_model", "num_key_value_heads": 2},
    "vocabulary_map": {
        "<image>": 90,
        "<|extra_200|>": 91,
        **{f"<|visual token {i:06d}|>": 20 + i for i in range(8)},
    },
    "vq_config": {
        **CODES,
        "codebook_size": 8,
        "attn_resolutions": [],
        "temporal_downsample_factor": 1,
        "hidden_size": 32,
        "num_attention_heads": 4,
    },
}


def runs_of(token, ids):
    """Return for each row how long the runs of a token are."""
    return [
        [len(list(run)) for is_it, run in itertools.groupby(row, token.__eq__) if is_it]
        for row in ids.tolist()
    ]


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
    assert record["prompts"]["image"]["optional"] == [media_way.TOKEN_TYPES]
    fed, result = run("Qwen2VLForConditionalGeneration", made, feed, "image")
    ids = fed.kwargs["input_ids"][0].tolist()
    start = ids.index(92)
    assert ids[start : start + 8] == [92, *[90] * 6, 93]
    takes = forks.accepts(model_of("Qwen2VLForConditionalGeneration", made), media_way.TOKEN_TYPES)
    assert (media_way.TOKEN_TYPES in fed.kwargs) == takes == (media_way.TOKEN_TYPES in fed.optional)
    assert result.logits.shape[1] == len(ids)


def test_a_video_of_qwen2_vl_has_its_patches_between_its_marks():
    name = "Qwen2VLForConditionalGeneration"
    (record, feed), made = choose("qwen2_vl", QWEN, name, PROMPTS)
    assert shapes(record, "video-padded")["pixel_values_videos"] == [96, 96]
    fed, result = run(name, made, feed, "video")
    assert fed.kwargs["video_grid_thw"].tolist() == [[2, 4, 6]]
    ids = fed.kwargs["input_ids"][0].tolist()
    start = ids.index(92)
    assert ids[start : start + 14] == [92, *[91] * 12, 93]
    types = fed.kwargs.get(media_way.TOKEN_TYPES)
    assert types is None or types.sum() == 24
    other = {**fed.kwargs, "pixel_values_videos": fed.kwargs["pixel_values_videos"].flip(0)}
    with torch.no_grad():
        assert not torch.equal(model_of(name, made)(**other).logits, result.logits)
    assert model_of(name, made).generate(**fed.kwargs, max_new_tokens=2).shape[1] > len(ids)


def test_frames_of_qwen3_vl_have_a_run_each():
    if "qwen3_vl" not in transformers.CONFIG_MAPPING:
        return
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3]}
    config = QWEN | {
        "text_config": {**TEXT, "num_key_value_heads": 2, "head_dim": 16, "rope_scaling": rope}
    }
    config["vision_config"] = FRAMES | {"deepstack_visual_indexes": [0]}
    name = "Qwen3VLForConditionalGeneration"
    (_, feed), made = choose("qwen3_vl", config, name, PROMPTS)
    fed, _ = run(name, made, feed, "video-padded")
    assert runs_of(91, fed.kwargs["input_ids"]) == [[6, 6], [6, 6]]
    assert fed.real_rows == [[0, 26], [4, 26]]


def test_frames_of_glm4v_are_images_between_the_marks_of_a_video():
    if "glm4v" not in transformers.CONFIG_MAPPING:
        return
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0}
    config = {"text_config": {**TEXT, "num_key_value_heads": 2, "rope_scaling": rope}}
    config |= {"vision_config": FRAMES, "image_token_id": 90, "video_token_id": 91}
    config |= {"image_start_token_id": 92, "image_end_token_id": 93}
    config |= {"video_start_token_id": 94, "video_end_token_id": 95}
    name = "Glm4vForConditionalGeneration"
    (_, feed), made = choose("glm4v", config, name, PROMPTS)
    fed, _ = run(name, made, feed, "video")
    frame = [92, *[90] * 6, 93]
    ids = fed.kwargs["input_ids"][0].tolist()
    assert ids[1:20] == [94, *frame, ids[10], *frame, 95]


def test_whole_frames_of_llava_are_one_run():
    config = {"text_config": {"model_type": "llama", **TEXT}}
    config |= {"image_token_index": 90, "video_token_index": 91}
    config |= {"image_grid_pinpoints": [[64, 64]]}  # the defaults are for tiles of 384 pixels
    for kind, image, name, count in (
        ("llava_onevision", "siglip", "LlavaOnevisionForConditionalGeneration", 9),
        ("llava_next_video", "clip", "LlavaNextVideoForConditionalGeneration", 8),
        ("video_llava", "clip", "VideoLlavaForConditionalGeneration", 34),
    ):
        part = {**IMAGE, "model_type": f"{image}_vision_model", "image_size": 32}
        (record, feed), made = choose(kind, config | {"vision_config": part}, name, PROMPTS)
        assert shapes(record, "video")["pixel_values_videos"] == [1, 2, 3, 32, 32]
        fed, _ = run(name, made, feed, "video")
        assert runs_of(91, fed.kwargs["input_ids"]) == [[count]], kind


def test_a_model_that_takes_no_video_has_no_such_prompt():
    config = LLAVA | {"image_token_index": 90, "image_seq_length": 9}
    (record, _), _ = choose("llava", config, "LlavaForConditionalGeneration", PROMPTS)
    assert "video" not in record["prompts"]


def test_a_video_token_that_is_no_token_is_a_reason():
    config = QWEN | {"video_token_id": 32000}
    (record, _), _ = choose("qwen2_vl", config, "Qwen2VLForConditionalGeneration", PROMPTS)
    reason = record["prompts"]["video"]["reason"]
    assert reason.endswith("video_token_id 32000 is outside of the vocabulary of 99")
    assert "video-padded" not in record["prompts"]


class WithoutVideos(torch.nn.Module):
    def forward(self, input_ids, pixel_values=None):
        """Take an image, as a release does that takes no video yet."""


def test_a_release_that_takes_no_video_is_not_accused():
    model = WithoutVideos()
    reason = raised(
        choice.NotFed,
        refusal.refusals(
            model.forward, dict.fromkeys(("input_ids", "pixel_values_videos"))
        ).__enter__,
    )
    assert "pixel_values_videos" in str(reason)


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


def test_two_images_stand_side_by_side_and_with_text_between():
    config = LLAVA | {"image_token_index": 90, "image_seq_length": 9}
    (record, feed), made = choose("llava", config, "LlavaForConditionalGeneration", PROMPTS)
    assert shapes(record, "two-images")["pixel_values"] == [4, 3, 24, 24]
    fed, result = run("LlavaForConditionalGeneration", made, feed, "two-images")
    assert runs_of(90, fed.kwargs["input_ids"]) == [[18], [9, 9]]
    assert fed.kwargs["attention_mask"].min() == 1
    pixels = fed.kwargs["pixel_values"].clone()
    pixels[3] += 1  # the second image of the second row
    with torch.no_grad():
        seen = model_of("LlavaForConditionalGeneration", made)(
            **{**fed.kwargs, "pixel_values": pixels}
        )
    assert torch.equal(seen.logits[0], result.logits[0])
    assert not torch.equal(seen.logits[1], result.logits[1])


def test_images_of_qwen2_vl_have_their_marks_and_grids():
    (record, feed), made = choose("qwen2_vl", QWEN, "Qwen2VLForConditionalGeneration", PROMPTS)
    assert shapes(record, "two-images")["image_grid_thw"] == [4, 3]
    fed, _ = run("Qwen2VLForConditionalGeneration", made, feed, "two-images")
    assert runs_of(90, fed.kwargs["input_ids"]) == [[6, 6], [6, 6]]
    assert (fed.kwargs["input_ids"] == 92).sum(1).tolist() == [2, 2]


def test_images_of_idefics3_have_a_dimension_of_their_own():
    image = {**IMAGE, "image_size": 32, "model_type": "idefics3"}
    config = {"text_config": {"model_type": "llama", **TEXT}, "vision_config": image}
    config |= {"image_token_id": 90, "scale_factor": 2}
    (record, feed), made = choose("idefics3", config, "Idefics3ForConditionalGeneration", PROMPTS)
    assert shapes(record, "image-padded")["pixel_values"] == [2, 1, 3, 32, 32]
    assert shapes(record, "two-images")["pixel_values"] == [2, 2, 3, 32, 32]
    run("Idefics3ForConditionalGeneration", made, feed, "two-images")


def test_a_token_of_mllama_sees_the_images_before_it():
    (_, feed), made = choose("mllama", MLLAMA, "MllamaForConditionalGeneration", PROMPTS)
    fed, _ = run("MllamaForConditionalGeneration", made, feed, "two-images")
    ids, seen = fed.kwargs["input_ids"], fed.kwargs["cross_attention_mask"]
    assert seen.shape == (2, 11, 2, 2)
    assert runs_of(90, ids) == [[2], [1, 1]]
    assert seen[1, :, :, 0].tolist() == [[0, 0], *[[1, 0]] * 5, *[[1, 1]] * 5]
    padded = feed.inputs("image-padded", None).kwargs["cross_attention_mask"]
    assert padded[:, :, 0, 0].sum(1).tolist() == [9, 5]


def test_kosmos2_has_a_mask_of_the_places_of_its_image():
    text = {"vocab_size": 99, "embed_dim": 32, "layers": 1, "ffn_dim": 48, "attention_heads": 4}
    image = {**IMAGE, "model_type": "kosmos_2_vision_model"}
    config = {"text_config": text, "vision_config": image, "latent_query_num": 4}
    (record, feed), made = choose("kosmos-2", config, "Kosmos2ForConditionalGeneration", PROMPTS)
    fed, _ = run("Kosmos2ForConditionalGeneration", made, feed, "image-padded")
    assert fed.kwargs["image_embeds_position_mask"].sum(1).tolist() == [4, 4]
    assert record["prompts"]["short"]["why"] == "plain"
    assert record["single"]["tensors"] == record["prompts"]["image"]["tensors"]
    assert "one image per text" in record["prompts"]["two-images"]["reason"]
    assert record["prompts"]["two-images"]["why"] == "plain"


def test_the_question_of_instructblip_is_fed():
    text = {"model_type": "opt", **TEXT, "ffn_dim": 48, "word_embed_proj_dim": 32}
    formers = {**TEXT, "encoder_hidden_size": 32, "cross_attention_frequency": 1}
    config = {"text_config": text, "vision_config": IMAGE, "qformer_config": formers}
    config |= {"num_query_tokens": 4, "image_token_index": 90}
    name = "InstructBlipForConditionalGeneration"
    (record, feed), made = choose("instructblip", config, name, PROMPTS)
    assert shapes(record, "image-padded")["qformer_input_ids"] == [2, 6]
    _, result = run(name, made, feed, "image-padded")
    assert result.logits.shape[:2] == (2, 13)


def test_fuyu_has_a_patch_for_each_placeholder():
    (record, feed), made = choose("fuyu", FUYU, "FuyuForCausalLM", PROMPTS)
    (name,) = set(shapes(record, "image")) & set(choice.IMAGE_NAMES)
    fed, _ = run("FuyuForCausalLM", made, feed, "two-images")
    assert fed.kwargs[name].shape == (2, 12, 48)
    assert runs_of(90, fed.kwargs["input_ids"]) == [[12], [6, 6]]
    assert not fed.renamed


class Renamed(torch.nn.Module):
    def forward(self, input_ids, pixel_values=None, **kwargs):
        """Take an image under its name of 5.x."""


def test_an_image_is_passed_under_the_name_that_a_release_has():
    for old in ("image_patches", "pixel_values_images"):
        assert model_feed._renamed([old, "input_ids"], Renamed()) == {old: "pixel_values"}
    assert model_feed._renamed(["pixel_values"], Renamed()) == {}
    text = transformers.LlamaConfig(**TEXT)
    assert model_feed._renamed(["image_patches"], model_of("LlamaForCausalLM", text)) == {}


def test_git_puts_its_image_before_the_text():
    config = {**TEXT, "vision_config": {**IMAGE, "model_type": "git_vision_model"}}
    (record, feed), made = choose("git", config, "GitForCausalLM", PROMPTS)
    fed, result = run("GitForCausalLM", made, feed, "image")
    assert result.logits.shape[1] > fed.kwargs["input_ids"].shape[1]
    assert "image-padded" not in record["prompts"]
    fed, result = run("GitForCausalLM", made, feed, "image-rows")
    assert len(result.logits) == len(fed.kwargs["pixel_values"]) == 2
    assert fed.kwargs["attention_mask"].all()
    assert "no token stands for an image" in record["prompts"]["two-images"]["reason"]


def test_chameleon_names_its_placeholder_in_its_vocabulary():
    (_, feed), made = choose("chameleon", CHAMELEON, "ChameleonForConditionalGeneration", PROMPTS)
    for name, count in (("image", 1), ("image-padded", 1), ("two-images", 2)):
        fed, _ = run("ChameleonForConditionalGeneration", made, feed, name)
        ids = fed.kwargs["input_ids"]
        assert (ids == 90).sum(1).tolist() == [256 * count] * len(ids)


def test_emu3_has_a_placeholder_for_each_code_even_where_a_release_counts_none():
    (record, _), _ = choose("emu3", EMU, "Emu3ForConditionalGeneration", PROMPTS)
    if "reason" in record["prompts"]["image"]:
        # 4.5x drops the image: Emu3ForConditionalGeneration hands no pixels to its model
        assert "does not follow from the image" in record["prompts"]["image"]["reason"]
        return
    assert shapes(record, "image")["input_ids"] == [1, 9 + 16 * 17]


def test_layouts_are_tried_in_a_model_whose_forward_is_quick():
    def layers(**fields):
        config = transformers.LlamaConfig(**{**TEXT, "num_hidden_layers": 5, **fields})
        first = next(tried.small_models(transformers.LlamaForCausalLM, config))
        return first.config.num_hidden_layers

    assert layers() == 5
    assert layers(vocab_size=200_000, hidden_size=64) < 5


class WithRates(transformers.LlamaForCausalLM):
    """Computes rates of dropped paths as own code of DaViT, EVA and InternViT does."""

    def __init__(self, config):
        super().__init__(config)
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]


def test_inputs_are_tried_in_a_class_that_reads_values_while_it_is_made():
    config = transformers.LlamaConfig(**TEXT)
    made = next(tried.small_models(WithRates, config), None)
    assert made is not None
    assert made.rates[-1] > 0  # made for real: zeros are read for the size alone


def test_a_mask_is_given_to_code_of_the_users_own_that_raises_without_one():
    """A reward head finds the last token by its mask, and lists the mask as optional."""

    class Scores(transformers.LlamaForCausalLM):
        def forward(self, input_ids=None, attention_mask=None, **kwargs):
            last = attention_mask.cumsum(1).argmax(1)
            logits = super().forward(input_ids, attention_mask=attention_mask).logits
            return logits[torch.arange(len(last)), last]

    class Raises(transformers.LlamaForCausalLM):
        def forward(self, input_ids=None, attention_mask=None, **kwargs):
            raise NotImplementedError

    config = transformers.LlamaConfig(**TEXT)
    assert tried.needs_mask(Scores, config)
    assert not tried.needs_mask(Raises, config)
    assert not tried.needs_mask(transformers.LlamaForCausalLM, config)


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

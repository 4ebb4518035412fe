"""auto: a tiny model of any type, whose forward runs, with nothing left at a default that could move."""

import json
import random
import sys
from pathlib import Path

import torch
import transformers
from samebits_probe.jobs import auto
from samebits_probe.model import choice, composite, inputs, repairs, timm_towers

COVERAGE = Path(__file__).parents[2] / "bench" / "coverage.json"
N_DRAWN = 4
EVERYWHERE = ("bert", "clip", "detr", "gpt_neox", "segformer", "t5", "vilt", "wav2vec2", "whisper")
"""Types that every release runs. They stand in for a release that coverage.json does not have."""
torch.set_num_threads(1)


def drawn():
    """Return types that run, drawn anew for each release."""
    types = json.loads(COVERAGE.read_text("utf-8"))["types"]
    release = transformers.__version__
    measured = [name for name, fact in types.items() if fact["runs"].get(release, ["-"])[0] == ""]
    runs = measured or EVERYWHERE
    return random.Random(release).sample(runs, min(N_DRAWN, len(runs)))


class TowerConfig(transformers.PretrainedConfig):
    model_type = "made_up_tower"

    def __init__(self, width=8, **kwargs):
        super().__init__(**kwargs)
        self.width = width


class TowersConfig(transformers.PretrainedConfig):
    model_type = "made_up_towers"
    sub_configs = dict.fromkeys(("vision_config", "audio_config", "other"), TowerConfig)

    def __init__(self, vision_config=None, audio_config=None, other=None, **kwargs):
        super().__init__(**kwargs)
        self.vision_config, self.other = vision_config, other
        self.audio_config = audio_config or TowerConfig(width=3)


def test_a_tower_that_the_default_leaves_out_is_made_and_one_that_it_has_is_kept():
    values = auto._default(TowersConfig)
    assert values["vision_config"]["width"] == 8
    assert values["audio_config"]["width"] == 3
    assert values["other"] is None


def test_types_drawn_at_random_run():
    for name in drawn():
        made = auto.make(name, 1)
        assert not made.refused, f"{name}: {made.refused}"
        assert made.prompts, name


def test_a_language_model_leaves_its_defaults():
    made = auto.make("llama", 1)
    config, default = made.model.config, transformers.LlamaConfig()
    assert type(made.model).__name__ == "LlamaForCausalLM"
    assert 1 < config.num_key_value_heads < config.num_attention_heads
    assert config.attention_bias
    assert config.rms_norm_eps != default.rms_norm_eps
    assert config.eos_token_id is None
    assert {"short", "long", "padded"} == {name for name, _ in made.prompts}


def test_a_window_is_shorter_than_the_longest_prompt():
    made = auto.make("mistral", 1)
    lengths = {name: kwargs["input_ids"].shape[1] for name, kwargs in made.prompts}
    assert made.model.config.sliding_window < lengths["long"]


def test_images_stand_among_the_text():
    made = auto.make("llava", 1)
    assert {"image", "image-padded"} <= {name for name, _ in made.prompts}, made.missed


def test_patches_are_as_wide_as_the_tokens_of_the_text():
    """The defaults of Qwen2-VL's parts are of two models: 3584 and 8192."""
    for name in known("qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
        made = auto.make(name, 1)
        assert not made.missed, f"{name}: {made.missed}"
        assert "pixel_values" in dict(made.prompts)["image"], name


def test_a_decoder_has_a_first_token():
    for name in known("t5", "mt5", "udop"):
        made = auto.make(name, 1)
        assert made.model.config.decoder_start_token_id is not None, name
        assert made.model.generation_config.decoder_start_token_id is not None, name


def test_fields_that_are_given_stay():
    made = auto.make("llama", 1, {"hidden_act": "gelu", "num_hidden_layers": 2})
    assert made.model.config.hidden_act == "gelu"
    assert len(made.model.model.layers) == 2


def test_a_head_may_be_named():
    made = auto.make("bert", 1, head="AutoModelForTokenClassification")
    assert type(made.model).__name__ == "BertForTokenClassification"


def test_a_type_without_a_class_has_a_reason():
    try:
        auto.make("llama", 1, head="AutoModelForCTC")
    except auto.NoneMade as reason:
        assert "has no AutoModelForCTC for llama" in str(reason)
    else:
        raise AssertionError


def known(*types):
    return [name for name in types if name in transformers.CONFIG_MAPPING]


def arguments(name):
    """Return the arguments of a type's first prompt."""
    made = auto.make(name, 1)
    assert not made.refused, f"{name}: {made.refused}"
    return made.prompts[0][1]


def test_parts_stand_alone():
    for name in known("encodec", "florence_vision", "gemma4_vision", "granite_speech_encoder"):
        assert arguments(name), name


def test_a_tower_of_patches_has_their_grid():
    for name in known("qwen2_5_vl_vision", "kimi_k25_vision"):
        (patches, grid) = arguments(name).values()
        assert int(grid.prod()) == len(patches), name


def test_an_encoder_of_sounds_has_a_mask():
    for name in known("audioflamingo3_encoder"):
        assert "input_features_mask" in arguments(name)


def test_patches_are_squares_with_their_channels_last_or_have_a_row_dimension():
    for name in known("inkling2_vision"):
        squares, grid = arguments(name).values()
        assert squares.ndim == 4
        assert int(grid.prod()) == len(squares)
    for name in known("paddleocr_vl_vision"):
        patches, grid = arguments(name).values()
        assert patches.shape[:2] == (1, int(grid.prod()))


def test_a_text_alone_is_not_missed_where_others_have_what_forward_requires():
    """Of a picture and of series: that samebits cannot make them was wrong."""
    required = {
        "blip-2": "pixel_values",
        "instructblip": "qformer_input_ids",
        "patchtst": "past_values",
        "time_series_transformer": "past_time_features",
        "videoprism": "pixel_values_videos",
    }
    for name in known(*required):
        made = auto.make(name, 1)
        assert not made.missed, f"{name}: {made.missed}"
        assert all(required[name] in kwargs for _, kwargs in made.prompts), name
    for name in known("qwen2_5_omni_dit"):
        assert "which samebits cannot make" in auto.make(name, 1).refused


def test_a_sound_as_it_is_stands_beside_a_text_and_alone():
    for name in known("pe_audio", "fastspeech2_conformer_with_hifigan"):
        assert arguments(name), name
    sound = arguments("speech-encoder-decoder")
    assert sound["input_values"].ndim == 2
    assert choice.DECODER in sound


def test_no_token_of_a_text_is_beyond_the_logits():
    """A label of it has no logit: no training step of Inkling 2 ran."""
    config = transformers.LlamaConfig(vocab_size=512)
    assert max(inputs.seeded_ids("any", 999, config)) > 470
    config.unpadded_vocab_size = 470
    assert max(inputs.seeded_ids("any", 999, config)) < 470


class Family:
    """Stands in for timm: an architecture of two families, and of one that is small as it is."""

    @staticmethod
    def create_model(name, *, pretrained, embed_dim=4096, depth=1, num_heads=1, img_size=8, **more):
        if more or (name == "nets" and embed_dim != 4096):
            raise TypeError
        made = torch.nn.Linear(embed_dim, 4096 if name != "small" else 8)
        made.num_features = embed_dim
        return made


def test_a_large_tower_of_timm_is_made_small_by_arguments_that_its_family_takes():
    before = sys.modules.get("timm")
    sys.modules["timm"] = Family
    try:
        tower = {"architecture": "vit", "model_args": {"depth": 9}, "hidden_size": 4096}
        made = {
            n: timm_towers.smaller({"vision_config": tower | {"architecture": n}}, "")
            for n in ("vit", "nets", "small")
        }
        own = timm_towers.smaller(
            {"architecture": "small", "model_args": None}, 'x.model_args["embed_dim"]'
        )
    finally:
        sys.modules.pop("timm") if before is None else sys.modules.update(timm=before)
    vision = made["vit"]["vision_config"]
    assert vision["hidden_size"] == vision["model_args"]["embed_dim"] < 4096
    assert vision["model_args"]["depth"] == 2
    assert not made["nets"]
    assert not made["small"]
    assert own["model_args"]["embed_dim"] == vision["hidden_size"]
    assert not timm_towers.smaller({"vision_config": tower}, "")  # timm is not installed


def test_a_plain_image_stays_as_it_is():
    assert [*arguments("vit")] == ["pixel_values"]


def test_what_a_config_leaves_open_is_filled():
    for name in known("deepseek_v2", "esm", "hunyuan_v1_moe", "informer", "lfm2_moe", "xmod"):
        assert arguments(name), name


def test_experts_and_kinds_of_layers_that_a_config_leaves_open_are_filled():
    for name in known("dots1", "diffusion_gemma_text", "deepseek_ocr2_text"):
        made = auto.make(name, 1)
        assert not made.refused, f"{name}: {made.refused}"


def test_a_default_that_does_not_fit_its_class_is_mended():
    """Of Zamba 4.48 says nothing: there two layers need not share their weights."""
    fitted = ("efficientnet", "gpt_neo", "hrm_text", "jamba", "superglue", "upernet", "zamba")
    for name in known(*fitted):
        made = auto.make(name, 1)
        assert not made.refused, f"{name}: {made.refused}"


def test_a_class_of_a_part_is_not_taken_for_the_whole():
    """AutoModelForCausalLM maps MusicGen's config to the class of its decoder."""
    assert auto.model_class("musicgen").__name__ == "MusicgenForConditionalGeneration"


def test_two_images_are_matched():
    for name in known("lightglue", "efficientloftr"):
        pixels = arguments(name)["pixel_values"]
        assert pixels.shape[1] == 2, name
        assert pixels.shape[-1] >= 64, name


def test_numbers_keep_their_type():
    """5.x refuses a float where a field is an int."""
    config = auto.make("wav2vec2-conformer", 1).model.config
    assert isinstance(config.rotary_embedding_base, int)


def test_the_image_token_of_fuyu_is_in_its_vocabulary():
    """4.48 has no field for it, and the default of later releases, 71011, is none of a small vocabulary."""
    config = auto.make("fuyu", 1).model.config
    assert config.image_token_id < config.text_config.vocab_size


def test_a_class_that_a_release_only_names_is_none():
    for name in known("voxtral_realtime_text"):
        try:
            auto.model_class(name)
        except auto.NoneMade:
            continue
        raise AssertionError(name)


def test_a_class_without_a_forward_names_its_parts_that_have_one():
    """Bark and Qwen3-Omni generate with their parts: what they compute was not observed, nor was said how to."""
    try:
        auto.model_class("bark")
    except auto.NoForward as reason:
        said = str(reason)
    assert "BarkModel has no forward" in said
    parts = ["BarkSemanticModel", "BarkCoarseModel", "BarkFineModel"]
    assert composite.parts(transformers.BarkModel) == parts
    assert all(f"transformers:{name}" in said for name in parts)
    assert not composite.has_no_forward(transformers.LlamaForCausalLM)
    made = auto.make("llama", 1, named=transformers.LlamaModel)
    assert type(made.model) is transformers.LlamaModel
    assert not made.refused


def test_a_long_prompt_reaches_past_windows_chunks_and_the_limit_of_a_rope():
    """A prompt of 40 tokens was within a dynamic rope of 64 positions, and within chunks of 64."""
    plain = {"max_position_embeddings": 4096, "rope_theta": 10000.0}
    dynamic = {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    for fields, length in (
        ({}, 40),
        ({"sliding_window": 512}, 520),
        ({"attention_chunk_size": 64}, 72),
        ({"attention_chunk_size": 8192}, 40),
        ({"max_position_embeddings": 64, **dynamic}, 72),
        ({"max_position_embeddings": 64}, 40),
        (dynamic, 40),
    ):
        config = transformers.LlamaConfig(**plain | fields)
        assert inputs.past_window(config) == length, fields


def test_text_that_needs_an_image_has_one():
    for name in known("blip-2", "idefics"):
        assert "pixel_values" in arguments(name), name


def test_a_default_that_takes_no_image_or_sound_is_repaired():
    repaired = {
        "voxtral": ("audio", "open placeholders"),
        "idefics3": ("image", "even patches"),
        "aya_vision": ("image", "even patches"),
        "granite_speech": ("audio", "meeting widths"),
    }
    for name in known(*repaired):
        kind, repair = repaired[name]
        made = auto.make(name, 1)
        assert made.extras[0] == repair, name
        assert {kind, f"{kind}-padded"} <= {n for n, _ in made.prompts}, name
        assert not made.missed, name


def test_images_and_sounds_that_need_more_than_a_placeholder_are_fed():
    kinds = {
        "chameleon": "image",  # a token for each code
        "colmodernvbert": "image",  # its images are described in a part of a part
        "deepseek_vl_hybrid": "image",  # a second resolution
        "layoutlmv3": "image",  # boxes of words
        "qwen3_asr": "audio",  # whole windows
        "t5gemma2": "image",  # its images are described in its encoder
        "udop": "image",  # boxes of words
    }
    for name in known(*kinds):
        made = auto.make(name, 1)
        assert not made.missed, name
        assert kinds[name] in {n for n, _ in made.prompts}, name


def test_a_box_belongs_to_each_token_beside_an_image():
    prompt = dict(auto.make("udop", 1).prompts)["image-padded"]
    assert prompt["bbox"].shape == (*prompt["input_ids"].shape, 4)


def test_a_loss_of_labels_that_nobody_gives_is_not_asked_for():
    assert {"input_ids", "pixel_values"} <= {*arguments("flava")}


def test_a_default_that_takes_its_images_is_not_repaired():
    assert not {*auto.make("llava", 1).extras} & {*repairs.REPAIRS}


def test_a_decoder_of_a_config_that_says_it_has_none_gets_ids():
    for name in known("musicgen_melody"):
        if transformers.__version__ >= "4.57":  # a class of 4.48 refuses its own config
            assert choice.DECODER in arguments(name)


def test_models_are_composed_of_two():
    for name in known("encoder-decoder"):
        assert "decoder_input_ids" in arguments(name), name


def test_gemma_4_is_fed_images_and_sounds():
    if "gemma4" not in transformers.CONFIG_MAPPING:
        return
    made = auto.make("gemma4", 1)
    prompts = dict(made.prompts)
    assert {"image", "image-padded", "audio", "audio-padded"} <= prompts.keys()
    sound = prompts["audio-padded"]
    assert sound["input_features_mask"].dtype == torch.bool
    assert (
        sound["input_features"].shape[-1]
        == made.model.config.audio_config.subsampling_conv_channels[0]
    )


def test_a_gemma_4_without_towers_is_fed_merged_patches_and_raw_frames():
    for name in known("gemma4_unified"):
        made = auto.make(name, 1)
        prompts, config = dict(made.prompts), made.model.config
        assert {"image", "two-images", "audio", "audio-padded"} <= prompts.keys()
        size = 3 * config.vision_config.model_patch_size**2
        assert prompts["image"]["pixel_values"].shape[-1] == size
        width = config.audio_config.audio_embed_dim
        assert prompts["audio"]["input_features"].shape[-1] == width


def test_sizes_that_defaults_do_not_meet_are_met():
    """Of windows, of stages, of a backbone, of sections of a rope; and tokens that only the code names."""
    for name in known("dpt", "vitmatte", "rf_detr", "ernie4_5_vl_moe", "shieldgemma2"):
        assert arguments(name), name


def test_an_image_enters_a_head_for_whole_rows():
    for name in known("shieldgemma2"):
        assert "image" in dict(auto.make(name, 1).prompts)


def of_class(name, kind):
    made = auto.make(kind, 1, named=getattr(transformers, name))
    assert not made.refused, f"{name}: {made.refused}"
    return dict(made.prompts)


def test_parts_of_bark_have_prompts_within_their_positions():
    for name in ("BarkSemanticModel", "BarkCoarseModel"):
        assert of_class(name, "bark")["long"]["input_ids"].shape[1] < 1024, name


def test_a_head_for_speakers_gets_a_sound_long_enough_and_ctc_the_usual_one():
    assert of_class("Wav2Vec2ForXVector", "wav2vec2")["short"]["input_values"].shape[-1] > 10_000
    assert of_class("Wav2Vec2ForCTC", "wav2vec2")["short"]["input_values"].shape[-1] == 4000


def test_a_decoder_of_sounds_has_frames_and_a_decoder_of_text_has_ids():
    for name in ("SpeechT5ForTextToSpeech", "SpeechT5ForSpeechToSpeech"):
        assert {"decoder_input_values", "speaker_embeddings"} <= {
            *of_class(name, "speecht5")["short"]
        }
    assert "decoder_input_values" not in of_class("SpeechT5ForSpeechToText", "speecht5")["short"]

"""jobs.inputs and model.feed: what real classes are fed, from their configs, and that they take it."""

import hashlib
import json
import tempfile
from pathlib import Path
from unittest import mock

import feeding
import torch
import transformers
from raising import raised
from samebits_probe.jobs import inputs as inputs_job
from samebits_probe.model import feed as model_feed
from samebits_probe.model.choice import DoesNotApply, NotFed
from samebits_probe.model.inputs import seeded_ids
from samebits_probe.model.media_way import reserved as reserved_of
from samebits_probe.model.tensor import header, raw_bytes

PROMPTS = {"short": {"length": 9}, "padded": {"batch": [{"length": 3}, {"length": 9}]}}
TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
IMAGE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 24,
    "patch_size": 8,
    "num_channels": 3,
}
T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
WHISPER = {
    "vocab_size": 99,
    "num_mel_bins": 16,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_source_positions": 30,
    "max_target_positions": 40,
    "pad_token_id": 0,
    "decoder_start_token_id": 3,
}
DUAL = {"text_config": {**TEXT, "max_position_embeddings": 40}, "vision_config": IMAGE}
LLAVA = {
    "text_config": {"model_type": "llama", **TEXT},
    "vision_config": {"model_type": "clip_vision_model", **IMAGE},
    "image_token_index": 12,
}
BERT = {**TEXT, "max_position_embeddings": 64}


def choose(model_type, config, architecture=None, prompts=PROMPTS, files=()):
    """Let a folder that holds a config and no weights be read; return its record and its config."""
    folder = Path(tempfile.mkdtemp())
    made = transformers.AutoConfig.for_model(model_type, **json.loads(json.dumps(config)))
    made.architectures = [architecture] if architecture else None
    made.save_pretrained(folder)
    return chosen(folder, prompts), made


def chosen(folder, prompts=PROMPTS):
    model = {"source": str(folder), "trust_remote_code": True, "prompts": prompts}
    model = feeding.chosen(model)
    return feeding.record_of(model), model_feed.Feed(model, torch.float32, "cpu")


def fed(record, name="short"):
    return list(record["prompts"][name]["tensors"])


def output(config, architecture, feed, name="short"):
    """Return what a model with random weights gives for a prompt."""
    kind = getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind._from_config(config).eval() if hasattr(kind, "_from_config") else kind(config)
    with torch.no_grad():
        return model(**feed.inputs(name, None).kwargs)


def test_the_numbers_of_a_prompt_are_always_the_same():
    """Of all that was ever observed, nothing is comparable when these change."""
    (record, feed), _ = choose("bert", BERT, "BertForMaskedLM")
    ids = feed.inputs("short", None).kwargs["input_ids"]
    assert ids.tolist() == [[62, 26, 11, 52, 48, 59, 34, 13, 93]]
    padded = feed.inputs("padded", None)
    assert padded.real_rows == [[6, 9], [0, 9]]
    assert padded.kwargs["attention_mask"].tolist()[0] == [0] * 6 + [1] * 3
    assert padded.kwargs["input_ids"][0].tolist() == [0] * 6 + [10, 54, 20]
    (record, feed), _ = choose("vit", IMAGE, "ViTForImageClassification")
    assert fed(record) == ["pixel_values"]
    assert record["prompts"]["padded"]["why"] == "plain"
    pixels = feed.inputs("short", None).kwargs["pixel_values"]
    digest = hashlib.sha256(header(pixels) + bytes(raw_bytes(pixels))).hexdigest()
    assert digest == "3e1dc1281226f9dbd55a101c3c732ac667eee342630db432ca1713a1d5ee420e"


def test_a_dual_encoder_gets_token_ids_and_an_image_for_each_row():
    for kind in ("clip", "siglip"):
        name = {"clip": "CLIPModel", "siglip": "SiglipModel"}[kind]
        (record, feed), config = choose(kind, DUAL, name)
        assert fed(record) == ["input_ids", "pixel_values"]
        inputs = feed.inputs("padded", None).kwargs
        assert inputs["pixel_values"].shape == (2, 3, 24, 24)
        assert inputs["input_ids"][:, -1].tolist() == [2, 2]  # where clip's text is pooled
        for prompt in PROMPTS:
            rows = len(feed.inputs(prompt, None).kwargs["input_ids"])
            assert output(config, name, feed, prompt).logits_per_image.shape == (rows, rows)


def test_a_dual_encoder_without_an_end_of_text_is_padded_where_it_does_not_pool():
    text = {
        **DUAL["text_config"],
        "eos_token_id": 49407,
    }  # the default, outside of a small vocabulary
    (_record, feed), _config = choose("clip", {**DUAL, "text_config": text}, "CLIPModel")
    assert feed.inputs("padded", None).real_rows == [[0, 3], [0, 9]]
    (_record, feed), _config = choose("clip", DUAL, "CLIPModel")
    assert feed.inputs("padded", None).real_rows == [[6, 9], [0, 9]]


def test_no_text_has_a_reserved_token_be_they_the_last_ones_of_the_vocabulary():
    config = transformers.LlamaConfig(vocab_size=64)
    first, last = [10, 11, 12], [60, 61, 62, 63]
    for reserved in (first, last):
        ids = seeded_ids("text", 400, config, reserved)
        assert not {*ids} & {*reserved}
        assert max(ids) < 64
    free = seeded_ids("text", 400, config)
    assert {*free} & {*last}
    held = seeded_ids("text", 400, config, last)
    assert [a for a, b in zip(free, held, strict=True) if a not in last] == [
        b for a, b in zip(free, held, strict=True) if a not in last
    ]


def test_tokens_that_a_config_names_in_a_list_are_reserved():
    """Ovis2's forward puts parts of an image at its indicators: a text with one accused generate() of mixed images."""
    config = transformers.LlamaConfig(vocab_size=64, eos_token_id=2, bos_token_id=None)
    config.visual_indicator_token_ids, config.image_token_id = [9, 8], 7
    assert {2, 7, 8, 9} <= {*reserved_of(config)}
    assert None not in reserved_of(config)


def test_llava_is_fed_as_a_text_model_without_its_image_token():
    prompts = {"short": {"length": 90}}
    (record, feed), config = choose("llava", LLAVA, "LlavaForConditionalGeneration", prompts)
    assert fed(record) == ["input_ids"]
    ids = feed.inputs("short", None).kwargs["input_ids"]
    assert 12 not in ids
    assert output(config, "LlavaForConditionalGeneration", feed).logits.shape == (1, 90, 99)


def test_text_models_get_what_they_always_got():
    names = ("BertForSequenceClassification", "BertForTokenClassification", "BertModel")
    for name in (*names, "BertForQuestionAnswering", "BertForMaskedLM"):
        (record, feed), config = choose("bert", BERT, name)
        assert (fed(record), fed(record, "padded")) == (
            ["input_ids"],
            ["input_ids", "attention_mask"],
        )
        assert output(config, name, feed, "padded")


def test_an_encoder_decoder_gets_decoder_ids_where_its_class_has_a_decoder():
    (record, feed), config = choose("t5", T5, "T5ForConditionalGeneration")
    assert fed(record) == ["input_ids", "decoder_input_ids"]
    ids = feed.inputs("short", None).kwargs["decoder_input_ids"]
    assert (ids.shape, int(ids[0, 0])) == ((1, 7), 0)  # a start token is not needed
    assert output(config, "T5ForConditionalGeneration", feed, "padded")
    (record, feed), config = choose("t5", T5, "T5EncoderModel")
    assert fed(record) == ["input_ids"]
    assert output(config, "T5EncoderModel", feed)
    # seven token ids: the decoder gets eight
    (_, feed), _ = choose("t5", T5, "T5Model", {"short": {"length": 7}})
    assert feed.inputs("short", None).kwargs["decoder_input_ids"].shape == (1, 8)


def test_sound_is_fed_to_whisper():
    for name in ("WhisperForConditionalGeneration", "WhisperModel"):
        (record, feed), config = choose("whisper", WHISPER, name)
        assert fed(record) == ["input_features", "decoder_input_ids"]
        assert feed.inputs("short", None).kwargs["input_features"].shape == (1, 16, 60)
        assert output(config, name, feed)
    (record, feed), config = choose("whisper", WHISPER, "WhisperForAudioClassification")
    assert fed(record) == ["input_features"]
    assert output(config, "WhisperForAudioClassification", feed)


def test_sound_has_its_frames_as_rows_where_the_model_takes_it_so():
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 16,
    }
    config = {**sizes, "feature_projection_input_dim": 24, "output_hidden_size": 32}
    (_, feed), config = choose("wav2vec2-bert", config, "Wav2Vec2BertForCTC")
    assert feed.inputs("short", None).kwargs["input_features"].shape == (1, 64, 24)
    assert output(config, "Wav2Vec2BertForCTC", feed)
    if "lasr_ctc" not in transformers.CONFIG_MAPPING:
        return
    encoder = {
        **sizes,
        "num_key_value_heads": 4,
        "subsampling_conv_channels": 16,
        "num_mel_bins": 20,
    }
    (_, feed), config = choose(
        "lasr_ctc", {"vocab_size": 16, "encoder_config": encoder}, "LasrForCTC"
    )
    assert feed.inputs("short", None).kwargs["input_features"].shape == (1, 64, 20)
    assert output(config, "LasrForCTC", feed)


def test_the_sound_of_a_codec_has_channels():
    config = {"num_filters": 4, "codebook_size": 16, "hidden_size": 16, "codebook_dim": 16}
    for channels in (1, 2):
        own = {**config, "audio_channels": channels}
        (_, feed), made = choose("encodec", own, "EncodecModel")
        assert feed.inputs("short", None).kwargs["input_values"].shape == (1, channels, 4000)
        assert output(made, "EncodecModel", feed)


def test_the_sound_of_a_model_with_a_codec_in_it_has_channels():
    if "pe_audio_encoder" not in transformers.CONFIG_MAPPING:
        return
    dac = {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "hidden_size": 32}
    config = {
        "dac_config": {**dac, "codebook_dim": 32},
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 16,
    }
    (_, feed), made = choose("pe_audio_encoder", config, "PeAudioEncoder")
    assert feed.inputs("short", None).kwargs["input_values"].shape == (1, 1, 4000)
    assert output(made, "PeAudioEncoder", feed)


def test_a_wave_without_a_codec_has_no_channels():
    config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    small = {"intermediate_size": 48, "num_conv_pos_embeddings": 16}
    (_, feed), made = choose("wav2vec2", {**config, **small}, "Wav2Vec2Model")
    assert feed.inputs("short", None).kwargs["input_values"].shape == (1, 4000)
    assert output(made, "Wav2Vec2Model", feed)


def test_video_has_frames():
    config = {**IMAGE, "num_frames": 4, "tubelet_size": 2}
    (_, feed), config = choose("videomae", config, "VideoMAEForVideoClassification")
    assert feed.inputs("short", None).kwargs["pixel_values"].shape == (1, 4, 3, 24, 24)
    assert output(config, "VideoMAEForVideoClassification", feed)


def test_a_flat_config_of_text_and_image_gets_both():
    config = {**BERT, **IMAGE}
    (record, feed), config = choose("vilt", config, "ViltModel")
    assert fed(record) == ["input_ids", "pixel_values"]
    assert output(config, "ViltModel", feed)


def test_what_cannot_be_made_is_a_reason():
    (record, feed), _ = choose("blip-2", {}, "Blip2ForConditionalGeneration")
    assert record["prompts"]["short"]["why"] == "inputs"
    assert "num_query_tokens" in record["prompts"]["short"]["reason"] or (
        "image_token" in record["prompts"]["short"]["reason"]
    )
    (record, feed), _ = choose("seggpt", {}, "SegGptModel")
    assert "prompt_masks" in record["prompts"]["short"]["reason"]
    reason = raised(NotFed, feed.inputs, "short", None)
    assert "prompt_masks" in str(reason)
    assert list(feed.all(None)) == []


def test_a_spectrogram_stands_beside_its_text():
    (record, _), config = choose("clap", {}, "ClapModel")
    assert fed(record) == ["input_ids", "input_features"]
    shape = record["prompts"]["padded"]["tensors"]["input_features"]["shape"]
    assert shape == [2, 1, 64, config.audio_config.num_mel_bins]


def test_a_release_that_has_no_such_class_is_no_failure():
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text('{"model_type": "nonesuch"}')
    record = chosen(folder)[0]
    assert "does not know model_type 'nonesuch'" in record["absent"]


OWN = """
import torch
from transformers import PretrainedConfig, PreTrainedModel

class OwnConfig(PretrainedConfig):
    model_type = "own"

class Own(PreTrainedModel):
    config_class = OwnConfig
    def forward(self, protein_embeddings=None, special_tokens_mask=None, return_dict=None):
        return protein_embeddings
"""


def test_code_of_a_model_is_read_for_its_signature():
    folder = Path(tempfile.mkdtemp())
    auto = {"AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.Own"}
    config = {"model_type": "own", "architectures": ["Own"], "auto_map": auto}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(OWN)
    record, _feed = chosen(folder)
    assert record["model_class"] == "Own"
    for prompt in (*record["prompts"].values(), record["single"]):
        assert prompt["reason"] == (
            "forward takes protein_embeddings, special_tokens_mask; "
            "samebits makes token ids, pixel values and audio: for others, give them with --inputs FILE, "
            "or under inputs: in matrix.yaml"
        )
        assert prompt["why"] == "inputs"


class Tokenizer:
    def __init__(self, length):
        self.length = length

    def __call__(self, text):
        return {"input_ids": list(range(20, 20 + self.length))}


def test_a_text_is_left_to_each_release_and_all_else_is_fed_by_bytes():
    folder = Path(tempfile.mkdtemp())
    transformers.T5Config(**T5, architectures=["T5Model"]).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("this release cannot read it")
    batch = [{"text": "a b"}, {"ids": [5, 6]}]
    record, feed = chosen(folder, {"short": {"text": "a b"}, "padded": {"batch": batch}})
    assert fed(record) == ["decoder_input_ids"]
    for length, decoder in ((5, 7), (7, 8), (8, 7)):
        inputs = feed.inputs("short", Tokenizer(length))
        assert inputs.text == "a b"
        assert inputs.kwargs["input_ids"].shape == (1, length)
        assert inputs.kwargs["decoder_input_ids"].shape == (1, decoder)
    padded = feed.inputs("padded", Tokenizer(4))
    assert padded.kwargs["input_ids"].tolist() == [[20, 21, 22, 23], [0, 0, 5, 6]]
    assert padded.real_rows == [[0, 4], [2, 4]]
    for tokenizer in (None, Tokenizer(0)):  # as 5.x makes a LlamaTokenizer without a vocabulary
        reason = raised(DoesNotApply, feed.inputs, "short", tokenizer)
        assert reason.why == "inputs"
    assert "makes no token of it" in str(reason)


def test_a_class_with_can_generate_of_instances_is_fed():
    kind = transformers.LlamaForCausalLM

    def can_generate(_self):
        return True

    with mock.patch.object(kind, "can_generate", can_generate):
        (record, _feed), _ = choose("llama", TEXT, "LlamaForCausalLM")
    assert fed(record) == ["input_ids"]


def test_a_class_that_gets_generate_from_its_auto_class_generates():
    class Encoder(transformers.PreTrainedModel):
        pass

    class Own(Encoder):
        def prepare_inputs_for_generation(self, input_ids):
            return {"input_ids": input_ids}

    kinds = (Own, transformers.LlamaForCausalLM, Encoder, transformers.BertModel)
    assert [inputs_job.generates(kind) for kind in kinds] == [True, True, False, False]


def test_what_generate_requires_and_no_prompt_has_is_known_for_each_prompt():
    class Heard(transformers.LlamaForCausalLM):
        def generate(self, input_ids, sound, *, seed, top=1, **kwargs):
            return super().generate(input_ids, **kwargs)

    kinds = (Heard, transformers.LlamaForCausalLM, transformers.BertModel)
    needs = [inputs_job.needed_by_generate(kind) for kind in kinds]
    assert needs == [["input_ids", "sound", "seed"], [], []]
    (record, feed), _ = choose("llama", TEXT, "LlamaForCausalLM")
    assert record["generate_needs"] == []
    feed._record["generate_needs"] = needs[0]
    assert feed.inputs(next(iter(feed.names)), None).not_generated_from == ("sound", "seed")


def test_numbers_come_in_the_dtype_of_the_cell_and_token_ids_stay_whole():
    (_record, feed), _ = choose("clip", DUAL, "CLIPModel")
    feed._dtype = torch.bfloat16
    inputs = feed.inputs("short", None).kwargs
    assert {n: t.dtype for n, t in inputs.items()} == {
        "input_ids": torch.int64,
        "pixel_values": torch.bfloat16,
    }

"""usage.beams.several: beams keep the image, the video or the sound of their own row, and a mix of rows is seen."""

import tempfile
from pathlib import Path
from unittest import mock

import torch
import transformers
from check_feed import IMAGE, LLAVA, TEXT, choose
from check_multimodal import AUDIO, MLLAMA, PROMPTS, QWEN, model_of
from samebits_probe.questions.usage import beams
from samebits_probe.questions.usage.subject import Subject
from tiny import RELEASE

IDEFICS = {
    "text_config": {"model_type": "llama", **TEXT},
    "vision_config": {**IMAGE, "image_size": 32, "model_type": "idefics3"},
    "image_token_id": 90,
    "scale_factor": 2,
}
KINDS = {
    "llava": (
        "LlavaForConditionalGeneration",
        LLAVA | {"image_token_index": 90, "image_seq_length": 9},
    ),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", QWEN),
    "idefics3": ("Idefics3ForConditionalGeneration", IDEFICS),
    "mllama": ("MllamaForConditionalGeneration", MLLAMA),
    "qwen2_audio": ("Qwen2AudioForConditionalGeneration", AUDIO),
}
SEEN = {"llava", "qwen2_vl", "idefics3", "qwen2_audio"}
"""Kinds whose random weights let the image be seen in the logits: the gates of mllama are closed."""


def kept(kind, prompt):
    """Return whether a release keeps images in their rows; None where its cache is wrong without beams, too.

    Up to 4.57 generate() repeats the images of Llava one by one, so that two images of a row are torn apart. 4.48 gives
    Qwen2-VL other positions over the cache.
    """
    if kind == "qwen2_vl" and RELEASE < (4, 49):
        return None
    return (kind, prompt) != ("llava", "two-images") or RELEASE >= (5, 0)


def subject_of(kind):
    architecture, config = KINDS[kind]
    (record, feed), made = choose(kind, config, architecture, PROMPTS)
    model = model_of(architecture, made)
    prompts = {}
    for name, entry in record["prompts"].items():
        if not entry.get("reason"):
            prompts[name] = dict(feed.inputs(name, None, model).kwargs)
    return Subject(model, "image-text-to-text", Path(tempfile.mkdtemp()), prompts)


def asked(kind):
    with torch.no_grad():
        return beams.several(subject_of(kind))


def keeps_rows(answer):
    limit = answer["of_others"] * 2.0**-12
    return None if answer["greedy"] > limit else answer["by_cache"] <= limit


def mixing(kind):
    """Let generate() give the beams of each row the images of the other one, in whichever way a release repeats them."""
    model_class = type(subject_of(kind).model)
    generate = model_class.generate

    def mixed(self, *args, num_beams=1, **kwargs):
        for name in ("pixel_values", "pixel_values_videos", "input_features"):
            if num_beams > 1 and name in kwargs:
                kwargs[name] = kwargs[name].roll(len(kwargs[name]) // 2, dims=0)
        return generate(self, *args, num_beams=num_beams, **kwargs)

    return mock.patch.object(model_class, "generate", mixed)


def test_beams_keep_what_belongs_to_their_row():
    for kind in KINDS:
        answers = asked(kind)
        assert answers, kind
        assert ("video-padded" in answers) == (kind == "qwen2_vl")
        for prompt, answer in answers.items():
            assert keeps_rows(answer) is kept(kind, prompt), (kind, prompt, answer)


def test_beams_with_the_image_of_another_row_are_seen():
    for kind in SEEN:
        with mixing(kind):
            answers = asked(kind)
        assert answers
        assert ("video-padded" in answers) == (kind == "qwen2_vl")
        for prompt, answer in answers.items():
            expected = False if kept(kind, prompt) is not None else None
            assert keeps_rows(answer) is expected, (kind, prompt, answer)


def test_images_that_cannot_be_repeated_are_an_exception():
    def refusing(*_args, expand_size=1, input_ids=None, is_encoder_decoder=False, **kwargs):
        if expand_size > 1:
            raise RuntimeError("split_with_sizes expects split_sizes to sum exactly to 96")
        return input_ids, kwargs

    kind = type(subject_of("llava").model)
    with mock.patch.object(kind, "_expand_inputs_for_generation", refusing):
        answers = asked("llava")
    assert answers
    assert all(answer["refused"].startswith("RuntimeError: split") for answer in answers.values())


def test_a_model_of_text_has_no_such_prompt():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)).eval()
    subject = Subject(model, "causal-lm", Path(tempfile.mkdtemp()))
    assert beams.several(subject) == {}

"""usage: a model that paints is asked for the tokens of an image; a planted defect is named, a clean twin is not."""

from unittest import mock

import torch
import transformers
from samebits_probe.questions.usage import painted
from samebits_probe.questions.usage.methods import asked

torch.set_num_threads(1)
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
TEXT = {"model_type": "llama", "vocab_size": 64, "intermediate_size": 32, **SIZES}
PATCHES = {"image_size": 16, "patch_size": 8, "num_image_tokens": 9, "projection_dim": 32}
CODES = {
    "embed_dim": 8,
    "num_embeddings": 32,
    "latent_channels": 8,
    "base_channels": 32,
    "channel_multiplier": [1, 1],
    "num_res_blocks": 1,
    "num_patches": 3,
    "projection_dim": 32,
    "image_token_embed_dim": 32,
}


def painter():
    config = transformers.JanusConfig(
        text_config=TEXT,
        vision_config={**PATCHES, **SIZES},
        vq_config=CODES,
        image_token_id=60,
    )
    made = transformers.JanusForConditionalGeneration(config).eval()
    ends = {"pad_token_id": 0, "bos_token_id": 1, "generation_kwargs": {"boi_token_id": 58}}
    made.generation_config = transformers.GenerationConfig(**ends)
    return made


def answers(model):
    return {name: asked(call) for name, call in painted.calls(model)}


def test_a_model_that_paints_is_asked_for_few_tokens_and_one_that_cannot_count_its_images_is_seen():
    if not hasattr(transformers, "JanusConfig"):
        return
    made = painter()
    assert answers(made) == {
        "generate(generation_mode='image')": {"gave": "tokens of images [1, 4]"}
    }
    assert made.model.vision_model.config.num_image_tokens == 9
    expand = made._expand_inputs_for_generation

    def uncounted(expand_size, **named):
        return expand(expand_size=None, **named)

    with mock.patch.object(made, "_expand_inputs_for_generation", uncounted):
        (answer,) = answers(made).values()
    assert "repeat_interleave" in answer["refused"]


def test_a_model_that_does_not_paint_is_not_asked():
    assert not answers(torch.nn.Linear(1, 1))

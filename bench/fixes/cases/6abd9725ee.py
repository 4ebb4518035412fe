"""Janus makes images."""

import torch
import transformers
from sizes import IDS, PLAIN_TEXT

CASE = {
    "symptom": "generate(generation_mode='image') of Janus raises TypeError: repeat_interleave(), as nothing sets the number of images",
    "area": "generation",
    "failure": "repeat_interleave",
    "says": (r"generation_mode",),
    "source": ("JanusForConditionalGeneration", "modeling_janus.py"),
}


def make(folder: str) -> None:
    """Write a tiny Janus."""
    config = transformers.JanusConfig(
        text_config={
            "model_type": "llama",
            **PLAIN_TEXT,
            "num_key_value_heads": 4,
            "max_position_embeddings": 64,
            **IDS,
        },
        vision_config={
            "image_size": 16,
            "patch_size": 8,
            "num_image_tokens": 4,
            "hidden_size": 32,
            "projection_dim": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "mlp_ratio": 2,
            "initializer_range": 0.3,
        },
        vq_config={
            "embed_dim": 8,
            "num_embeddings": 32,
            "latent_channels": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "num_patches": 2,
            "projection_dim": 32,
            "image_token_embed_dim": 32,
            "initializer_range": 0.3,
        },
        image_token_id=60,
    )
    model = transformers.JanusForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=0, bos_token_id=1, eos_token_id=2, generation_kwargs={"boi_token_id": 58}
    )
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens of an image that is made, or the exception."""
    model = transformers.JanusForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[1, 5, 6, 7, 58]])
    made = model.generate(
        inputs=ids,
        attention_mask=torch.ones_like(ids),
        generation_mode="image",
        guidance_scale=5,
        do_sample=False,
    )
    return list(made.shape)

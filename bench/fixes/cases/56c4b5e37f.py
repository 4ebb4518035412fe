"""Janus's image processor rounds the shorter side of an image."""

import numpy as np
import transformers
from sizes import SMALL

CASE = {
    "symptom": "Janus's image processor cuts off the fraction of the shorter side: an image is a pixel too small",
    "area": "processor",
    "signals": ("inputs", "pixel_values", "processor"),
    "says": (r"pixel_values", r"JanusImageProcessor"),
    "source": ("JanusImageProcessor", "image_processing_janus", "pixel_values"),
}


def make(folder: str) -> None:
    """Write a tiny Janus with its image processor."""
    config = transformers.JanusConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": 96,
            **SMALL,
            "num_key_value_heads": 4,
            "initializer_range": 0.3,
            "pad_token_id": 0,
        },
        vision_config={
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "mlp_ratio": 2,
            "image_size": 32,
            "patch_size": 8,
            "projection_dim": 32,
            "num_image_tokens": 16,
            "depth": 2,
        },
        vq_config={
            "embed_dim": 8,
            "num_embeddings": 32,
            "latent_channels": 8,
            "in_channels": 3,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "projection_dim": 32,
            "num_patches": 4,
            "image_token_embed_dim": 32,
            "num_hidden_layers": 2,
        },
        image_token_id=90,
    )
    transformers.JanusForConditionalGeneration(config).save_pretrained(folder)
    transformers.JanusImageProcessor(size={"height": 32, "width": 32}, min_size=8).save_pretrained(
        folder
    )


def observe(folder: str) -> object:
    """Return the number of rows that are no background, for images of several heights."""
    processor = transformers.JanusImageProcessor.from_pretrained(folder)
    seen = {}
    for height in (23, 24, 25, 26, 27):
        image = np.full((height, 45, 3), 255, np.uint8)
        pixels = processor(image, return_tensors="np")["pixel_values"][0]
        middle = pixels[0, :, pixels.shape[2] // 2]
        seen[height] = int((middle == middle.max()).sum())
    return seen

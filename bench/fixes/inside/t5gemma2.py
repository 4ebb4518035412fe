"""A tiny T5Gemma 2, which several cases share."""

from __future__ import annotations

import transformers
from sizes import GEMMA_IDS, TEXT_128, TOWER  # type: ignore[import-not-found]  # beside this file


def make(folder: str) -> None:
    """Write it."""
    text = {
        **TEXT_128,
        "head_dim": 8,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 16,
        **GEMMA_IDS,
    }
    vision = {**TOWER, "image_size": 16, "patch_size": 8}
    encoder = {
        "text_config": text,
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        "image_token_index": 120,
        "boi_token_index": 121,
        "eoi_token_index": 122,
    }
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=text, image_token_index=120)
    transformers.T5Gemma2ForConditionalGeneration(config).save_pretrained(folder)

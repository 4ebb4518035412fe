"""A tiny LLaVA, which several cases share."""

from __future__ import annotations

from sizes import SMALL  # type: ignore[import-not-found]  # beside this file
from transformers import LlavaConfig, LlavaForConditionalGeneration


def make(folder: str) -> None:
    """Write it."""
    config = LlavaConfig(
        text_config=SMALL | {"model_type": "llama", "vocab_size": 64, "initializer_range": 0.3},
        vision_config=SMALL
        | {
            "model_type": "clip_vision_model",
            "image_size": 16,
            "patch_size": 8,
            "projection_dim": 32,
        },
        image_token_index=60,
        vision_feature_layer=-1,
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)

"""A tiny LLaVA-OneVision with its processor, which several cases share."""

from __future__ import annotations

import transformers
from sizes import GROUPED, TOWER  # type: ignore[import-not-found]  # beside this file
from tokens import NAMED, SPACES, tokenizer_of  # type: ignore[import-not-found]

SPECIAL = [*NAMED.values(), "<image>", "<video>"]


def make(folder: str, size: dict[str, int]) -> None:
    """Write it, with a size of its images."""
    words = [*SPECIAL, "what", "is", "this"]
    tokenizer = tokenizer_of(words, SPACES, additional_special_tokens=SPECIAL[4:], **NAMED)
    pinpoints = [[16, 16], [16, 32], [32, 16], [32, 32]]
    transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size=size, image_grid_pinpoints=pinpoints
        ),
        video_processor=transformers.LlavaOnevisionVideoProcessor(size={"height": 16, "width": 16}),
        tokenizer=tokenizer,
        num_image_tokens=4,
        vision_feature_select_strategy="full",
    ).save_pretrained(folder)
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", "vocab_size": 16, **GROUPED, "initializer_range": 0.3},
        vision_config={
            "model_type": "siglip_vision_model",
            **TOWER,
            "image_size": 16,
            "patch_size": 8,
            "vision_use_head": False,
        },
        image_grid_pinpoints=pinpoints,
        image_token_index=4,
        video_token_index=5,
    )
    transformers.LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)

"""A tiny LLaVA-NeXT with its processor, which several cases share."""

from __future__ import annotations

import transformers
from sizes import SMALL, TEXT  # type: ignore[import-not-found]  # beside this file
from tokens import NAMED, tokenizer_of  # type: ignore[import-not-found]

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
TILE = 30


def make(folder: str, **options: object) -> None:
    """Write it with these options of its image processor."""
    words = [*SPECIAL, "what", "is", "this", "image", ":", "?", "\n"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, added=SPECIAL, **NAMED)
    grid = [[TILE, 2 * TILE], [2 * TILE, TILE], [2 * TILE, 2 * TILE]]
    image_processor = transformers.LlavaNextImageProcessor(
        size={"shortest_edge": TILE},
        crop_size={"height": TILE, "width": TILE},
        image_grid_pinpoints=grid,
        **options,
    )
    transformers.LlavaNextProcessor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=6,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    vision = {
        "model_type": "clip_vision_model",
        **SMALL,
        "image_size": TILE,
        "patch_size": 6,
        "projection_dim": 32,
    }
    text = {"model_type": "llama", **TEXT, "pad_token_id": 0}
    config = transformers.LlavaNextConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=vocab["<image>"],
        image_grid_pinpoints=grid,
    )
    transformers.LlavaNextForConditionalGeneration(config).save_pretrained(folder)

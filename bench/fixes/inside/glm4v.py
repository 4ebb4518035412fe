"""A tiny GLM-4V with its processor, which several cases share."""

from __future__ import annotations

from typing import Any

import transformers
from sizes import TEXT  # type: ignore[import-not-found]  # beside this file
from tokens import tokenizer_of  # type: ignore[import-not-found]  # beside this file

SPECIAL = [
    "<pad>",
    "</s>",
    "<unk>",
    "<|image|>",
    "<|video|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
]


def make(folder: str, image_processor_class: Any, longest_edge: int) -> None:
    """Write one with an image processor of this class; its edges count the pixels of both frames of a patch."""
    words = [*SPECIAL, "what", "is", "this", "image", "?", "0", "1", "2", "3", "4"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(
        words, added=SPECIAL, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    size = {"shortest_edge": 28 * 28, "longest_edge": longest_edge}
    transformers.Glm4vProcessor(
        image_processor=image_processor_class(size=size),
        video_processor=transformers.Glm4vVideoProcessor(size=size),
        tokenizer=tokenizer,
    ).save_pretrained(folder)
    ids = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    config = transformers.Glm4vConfig(
        text_config={
            **TEXT,
            "max_position_embeddings": 2048,
            "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]},
            "pad_token_id": 0,
            "eos_token_id": 1,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "image_size": 56,
            "patch_size": 14,
        },
        **{name: vocab[word] for name, word in ids.items()},
    )
    transformers.Glm4vForConditionalGeneration(config).save_pretrained(folder)

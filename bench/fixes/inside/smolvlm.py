"""A tiny SmolVLM with its processor, which several cases share."""

from __future__ import annotations

from typing import Any

import transformers
from sizes import TOWER  # type: ignore[import-not-found]
from tokens import tokenizer_of  # type: ignore[import-not-found]  # beside this file

SPECIAL = [
    "<pad>",
    "<|im_start|>",
    "<end_of_utterance>",
    "<unk>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
]
WORDS = [*SPECIAL, *(f"<row_{r}_col_{c}>" for r in (1, 2) for c in (1, 2))]
WORDS += ["what", "is", "this", ":", "\n"]
SIZES = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 32}}


def make(folder: str) -> None:
    """Write one that does not split images."""
    image_processor = transformers.SmolVLMImageProcessor(do_image_splitting=False, **SIZES)
    save(image_processor, folder)


def save(image_processor: Any, folder: str) -> None:
    """Write one with this image processor."""
    tokenizer = tokenizer_of(
        WORDS,
        added=SPECIAL,
        pad_token="<pad>",
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
    )
    processor = transformers.SmolVLMProcessor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        video_processor=transformers.SmolVLMVideoProcessor(
            video_sampling={"max_frames": 4, "fps": 1, "video_size": {"longest_edge": 32}}, **SIZES
        ),
        image_seq_len=4,
    )
    processor.save_pretrained(folder)
    vision = {**TOWER, "image_size": 32, "patch_size": 8}
    text = {
        "model_type": "llama",
        "vocab_size": 64,
        **TOWER,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
    }
    config = transformers.SmolVLMConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=WORDS.index("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    transformers.SmolVLMForConditionalGeneration(config).save_pretrained(folder)

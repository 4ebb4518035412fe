"""A tiny Qwen2-VL with its processor, which several cases share."""

from __future__ import annotations

from typing import Any

import tokenizers
import transformers
from sizes import GROUPED  # type: ignore[import-not-found]  # beside this file

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
NAMED = {
    "additional_special_tokens": SPECIAL,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
}
WORDS = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *SPECIAL]
VOCAB = {word: number for number, word in enumerate(WORDS)}
IDS = {
    "image_token_id": VOCAB["<|image_pad|>"],
    "video_token_id": VOCAB["<|video_pad|>"],
    "vision_start_token_id": VOCAB["<|vision_start|>"],
    "vision_end_token_id": VOCAB["<|vision_end|>"],
}
PATCHES = {
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 64,
    "max_pixels": 256,
}
TEXT = {
    "vocab_size": len(WORDS),
    **GROUPED,
    "initializer_range": 0.3,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
}
VISION = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 4,
    "mlp_ratio": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def make(folder: str) -> None:
    """Write it."""
    save_processor(transformers.Qwen2VLProcessor, tokenizer(), folder)
    config = transformers.Qwen2VLConfig(text_config=TEXT, vision_config=VISION, **IDS)
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)


def tokenizer() -> Any:
    """Return its tokenizer, whose tokens are bytes."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=VOCAB, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return transformers.Qwen2TokenizerFast(tokenizer_object=backend, **NAMED)


def save_processor(processor_class: Any, tokenizer: Any, folder: str) -> None:
    """Write a processor of a class with this tokenizer."""
    processor_class(
        image_processor=transformers.Qwen2VLImageProcessor(**PATCHES),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(**PATCHES),
    ).save_pretrained(folder)

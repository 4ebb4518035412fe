"""T5Gemma 2 keeps the whole of a long input for its decoder."""

import torch
import transformers
from sizes import GEMMA_IDS, TEXT_128, TOWER

CASE = {
    "symptom": "generate() of T5Gemma 2 keeps the last 4095 tokens of a longer input alone: it fails, or goes on otherwise than without a cache",
    "signals": ("decode", "greedy"),
    "says": (r"_prepare_cache_for_generation", r"cross_attention_cache", r"cross_attn_config"),
    "source": ("_prepare_cache_for_generation", "modeling_t5gemma2.py"),
}
LENGTH = 4200


def make(folder: str) -> None:
    """Write a tiny T5Gemma 2."""
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


def observe(folder: str) -> object:
    """Return the tokens that follow a long text, with a cache and without, or the exception."""
    model = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.arange(LENGTH)[None] % 100 + 10
    made = {}
    for use_cache in (True, False):
        try:
            tokens = model.generate(
                ids, use_cache=use_cache, max_new_tokens=6, min_new_tokens=6, do_sample=False
            )
            made[f"use_cache={use_cache}"] = tokens[0].tolist()
        except RuntimeError as error:
            made[f"use_cache={use_cache}"] = f"RuntimeError: {error}"[:100]
    return made

"""T5Gemma 2 keeps the whole of a long input for its decoder."""

import t5gemma2
import torch
import transformers

CASE = {
    "symptom": "generate() of T5Gemma 2 keeps the last 4095 tokens of a longer input alone: it fails, or goes on otherwise than without a cache",
    "signals": ("decode", "greedy"),
    "says": (r"_prepare_cache_for_generation", r"cross_attention_cache", r"cross_attn_config"),
    "source": ("_prepare_cache_for_generation", "modeling_t5gemma2.py"),
}
LENGTH = 4200


def make(folder: str) -> None:
    """Write a tiny T5Gemma 2."""
    t5gemma2.make(folder)


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

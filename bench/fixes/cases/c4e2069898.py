"""A hybrid cache whose layers differ in their length has the largest as its own."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "before": "4.54.0",
    "after": "4.54.1",
    "symptom": "the second generate() of a Gemma 2 raises once its text is longer than the window",
    "area": "generation",
    "failure": "Max cache length is not consistent across layers",
    "says": (r"Max cache length is not consistent",),
    "source": ("max_cache_len", "cache_utils.py", "HybridCache"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 2 with a window of 8, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Gemma2Config(
        **TEXT,
        head_dim=8,
        max_position_embeddings=64,
        sliding_window=8,
        query_pre_attn_scalar=8,
        **IDS,
    )
    model = transformers.Gemma2ForCausalLM(config)
    model.generation_config.cache_implementation = "hybrid"
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the length of two answers of one model, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(4, 10)[None]
    seen = []
    for _ in range(2):
        try:
            seen.append(model.generate(ids, max_new_tokens=8, do_sample=False).shape[1])
        except ValueError as error:
            seen.append(f"ValueError: {error}"[:70])
    return seen

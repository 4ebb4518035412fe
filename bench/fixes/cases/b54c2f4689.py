"""Llama 4 generates with a static cache."""

import torch
import transformers
from sizes import IDS, TEXT

CASE = {
    "before": "4.51.0",
    "after": "4.51.1",
    "packages": ("accelerate",),
    "symptom": "Llama 4 with a static cache raises TypeError, as the length of the mask is a method that is not called",
    "failure": "must be tuple of ints",
    "says": (r"must be tuple of ints", r"get_max_cache_shape"),
    "source": ("_update_causal_mask", "Llama4TextModel", "modeling_llama4.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama 4 of text alone."""
    config = transformers.Llama4TextConfig(
        **TEXT,
        head_dim=8,
        intermediate_size_mlp=48,
        num_local_experts=2,
        attention_chunk_size=64,
        **IDS,
    )
    transformers.Llama4ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens are made with a static cache."""
    model = transformers.Llama4ForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    cache = transformers.StaticCache(model.config, max_batch_size=1, max_cache_len=32)
    with torch.no_grad():
        logits = model(
            ids, attention_mask=torch.ones_like(ids), past_key_values=cache, use_cache=True
        ).logits
    return list(logits.shape)

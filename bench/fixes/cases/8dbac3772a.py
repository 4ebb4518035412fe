"""The length of a static cache is a number, not a list of one."""

import torch
import transformers
from sizes import IDS, TEXT

CASE = {
    "symptom": "get_seq_length() of a StaticCache is a tensor of one dimension in place of a number",
    "says": (r"StaticLayer", r"cumulative_length", r"StaticCache.*get_seq_length"),
    "source": ("StaticLayer", "get_seq_length", "StaticSlidingWindowLayer"),
}


def make(folder: str) -> None:
    """Write a tiny Llama."""
    config = transformers.LlamaConfig(**TEXT, **IDS)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the length of a static cache behind a prompt of four tokens."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        model(torch.arange(5, 9)[None], past_key_values=cache)
    return {"length": torch.as_tensor(cache.get_seq_length()).tolist()}

"""Flex attention takes a static cache."""

import torch
import transformers
from sizes import GROUPED

CASE = {
    "symptom": "flex_attention with a static cache raises ValueError as the mask of blocks has five dimensions",
    "findings": ("SB916",),
    "failure": "too many values to unpack",
    "says": (r"flex_attention.*(static|cache)", r"(static|cache).*flex_attention"),
    "source": ("_preprocess_mask_arguments", "masking_utils.py", "create_block_mask"),
}


def make(folder: str) -> None:
    """Write a tiny Llama."""
    config = transformers.LlamaConfig(
        vocab_size=64, **(GROUPED | {"hidden_size": 64}), initializer_range=0.3, pad_token_id=0
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a token behind a text in a static cache."""
    model = transformers.LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="flex_attention"
    ).eval()
    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        model(ids, past_key_values=cache)
        logits = model(torch.tensor([[9]]), past_key_values=cache).logits
    return list(logits.shape)

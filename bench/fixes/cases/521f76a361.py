"""CTRL generates with flex attention."""

import torch
import transformers
from sizes import IDS

CASE = {
    "symptom": "CTRL with flex_attention and a static cache raises AttributeError in generate: 'BlockMask' object has no attribute 'ndim'",
    "failure": "'BlockMask'",
    "says": (r"'BlockMask'", r"flex_attention.*(mask|CTRL)"),
    "source": ("CTRLModel", "modeling_ctrl.py"),
}


def make(folder: str) -> None:
    """Write a tiny CTRL."""
    config = transformers.CTRLConfig(
        vocab_size=64,
        n_positions=64,
        n_embd=64,
        dff=48,
        n_layer=2,
        n_head=4,
        initializer_range=0.3,
        **IDS,
    )
    transformers.CTRLLMHeadModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens are made with a static cache, or the exception."""
    model = transformers.CTRLLMHeadModel.from_pretrained(
        folder, attn_implementation="flex_attention"
    ).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        cache_implementation="static",
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        disable_compile=True,
    )
    return {"tokens": made.shape[1] - ids.shape[1]}

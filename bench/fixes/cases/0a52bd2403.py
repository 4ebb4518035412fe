"""Qwen2 masks no window where its config switches the window off."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "Qwen2 attends to a sliding window although use_sliding_window is false: other logits for a longer text",
    "signals": ("logits", "hidden_states", "greedy", "outputs", "decode", "mask"),
    "says": (r"sliding_window", r"use_sliding_window"),
    "source": (
        "Qwen2Model",
        "_update_causal_mask",
        "_prepare_4d_causal_attention_mask_with_cache_position",
        "modeling_qwen2.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2 with a window of four tokens that is switched off, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Qwen2Config(
        **TEXT,
        max_position_embeddings=64,
        use_sliding_window=False,
        sliding_window=4,
        max_window_layers=0,
        **IDS,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the last logits of a text depend on its first token, as far as zero is none."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager"
    ).eval()
    ids = torch.arange(3, 15)[None]
    other = ids.clone()
    other[0, 0] = 20
    with torch.no_grad():
        return not torch.equal(model(ids).logits[0, -1], model(other).logits[0, -1])

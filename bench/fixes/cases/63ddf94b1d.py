"""A dynamic rotary embedding is the original one again for a short text after a long one."""

import torch
import transformers
from sizes import TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "symptom": "after a long text a Llama with dynamic rope gives other logits for a short one",
    "findings": ("SB711", "SB712"),
    "says": (r"max_seq_len_cached", r"dynamic_frequency_update"),
    "source": ("dynamic_rope_update", "dynamic_frequency_update", "modeling_rope_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with dynamic rope, and its tokenizer."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this"]
    tokenizer_of(words, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(
        **TEXT,
        max_position_embeddings=16,
        rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
        pad_token_id=0,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a short text has the same logits before and after a long one."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    short = torch.arange(3, 11)[None]
    with torch.no_grad():
        first = model(short).logits
        model(torch.arange(3, 43)[None])
        second = model(short).logits
    return {"logits are equal": bool(torch.equal(first, second))}

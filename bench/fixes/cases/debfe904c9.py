"""Llama 4 takes several rows, and is trained with checkpoints of its activations."""

import torch
import transformers
from sizes import IDS, LLAMA4

CASE = {
    "before": "4.51.0",
    "after": "4.51.1",
    "packages": ("accelerate",),
    "symptom": "Llama 4 with attn_temperature_tuning raises RuntimeError for two rows",
    "findings": ("SB931", "SB932"),
    "failure": "is invalid for input of size",
    "says": (r"attn_scales",),
    "source": ("Llama4TextAttention", "modeling_llama4.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama 4 for text of which one layer has no rotary embedding."""
    config = transformers.Llama4TextConfig(
        **(LLAMA4 | {"num_hidden_layers": 4}),
        attention_chunk_size=16,
        no_rope_layers=[1, 1, 1, 0],
        attn_temperature_tuning=4,
        **IDS,
    )
    transformers.Llama4ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of two rows."""
    model = transformers.Llama4ForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return list(model(torch.arange(3, 15).view(2, 6), use_cache=False).logits.shape)

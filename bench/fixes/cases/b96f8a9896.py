"""Ministral 3 scales its queries by the positions of each row."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "a batch that is padded on the left gives Ministral 3 other logits: padding is counted",
    "signals": ("logits", "hidden_states"),
    "findings": ("SB705", "SB865"),
    "says": (r"llama_4",),
    "source": ("get_llama_4_attn_scale", "modeling_ministral3.py", "Ministral3Attention"),
}


def make(folder: str) -> None:
    """Write a tiny Ministral 3 whose scale changes every 8 positions, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Ministral3Config(
        **TEXT,
        head_dim=8,
        max_position_embeddings=256,
        **IDS,
        rope_parameters={
            "type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 8,
            "max_position_embeddings": 128,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            "llama_4_scaling_beta": 0.5,
        },
    )
    transformers.Ministral3ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether padding on the left changes the last logits by more than rounding."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(4, 16)[None]
    padded = torch.cat([torch.zeros(1, 5, dtype=torch.long), ids], 1)
    mask = (padded != 0).long()
    places = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        alone = model(ids).logits[0, -1]
        both = model(padded, attention_mask=mask, position_ids=places).logits[0, -1]
    return bool((alone - both).abs().max() > 1e-3)

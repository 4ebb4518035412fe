"""Evolla's eager attention repeats the key and value heads of its text decoder."""

import torch
import transformers
from sizes import IDS, SMALL, TEXT

CASE = {
    "symptom": "Evolla with fewer key-value heads than heads raises with eager attention: sizes of tensors do not match",
    "failure": "must match the size of tensor",
    "says": (r"must match the size of tensor",),
    "source": ("eager_attention_forward", "EvollaAttention", "modeling_evolla.py"),
}


def make(folder: str) -> None:
    """Write a tiny Evolla with grouped-query attention, as the published one has."""
    config = transformers.EvollaConfig(
        protein_encoder_config={"vocab_size": 64, **SMALL, "max_position_embeddings": 64},
        **TEXT,
        max_position_embeddings=64,
        aligner_num_add_layers=1,
        resampler_depth=1,
        resampler_dim_head=8,
        resampler_heads=4,
        resampler_num_latents=4,
        **IDS,
    )
    transformers.EvollaForProteinText2Text(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return some logits per attention, or the exception."""
    ids, protein = torch.arange(3, 12)[None], torch.arange(5, 18)[None]
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "protein_input_ids": protein,
        "protein_attention_mask": torch.ones_like(protein),
    }
    seen = {}
    for attention in ("sdpa", "eager"):
        model = transformers.EvollaForProteinText2Text.from_pretrained(
            folder, attn_implementation=attention
        ).eval()
        try:
            with torch.no_grad():
                logits = model(**inputs).logits
            seen[attention] = [round(value, 2) for value in logits[0, -1, :4].tolist()]
        except RuntimeError as error:
            seen[attention] = f"RuntimeError: {error}".splitlines()[0]
    return seen

"""A row of Llama 4 that is padded on the left attends to the same chunks as without padding."""

import torch
import transformers
from sizes import IDS, LLAMA4

CASE = {
    "symptom": "a batch that is padded on the left gives Llama 4 other logits: its chunks start at the padding",
    "signals": ("logits", "hidden_states"),
    "findings": ("SB705",),
    "says": (r"chunked",),
    "source": (
        "chunked_overlay",
        "chunked_causal_mask_function",
        "create_chunked_causal_mask",
        "masking_utils.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Llama 4 for text with chunks of four tokens."""
    config = transformers.Llama4TextConfig(
        **LLAMA4,
        attention_chunk_size=4,
        layer_types=["chunked_attention", "chunked_attention"],
        **IDS,
    )
    transformers.Llama4ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how far the last logits of a padded row are from those of the row alone."""
    model = transformers.Llama4ForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    ids = torch.arange(5, 14)[None]
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], dim=1)
    mask = (padded != 0).long()
    with torch.no_grad():
        alone = model(ids, attention_mask=torch.ones_like(ids)).logits[0, -1]
        row = model(padded, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0)).logits[
            0, -1
        ]
    return {"distance": round(float((alone - row).abs().max()), 3)}

"""SAM's attention maps have one form under sdpa and eager."""

import sam
import torch
import transformers

CASE = {
    "symptom": "attention maps of a SAM under sdpa have four axes where eager gives three",
    "signals": ("attentions", "vision_attentions"),
    "says": (r"attentions", r"output_attentions"),
    "source": ("SamVisionSdpaAttention", "SamVisionAttention", "modeling_sam.py"),
}


def make(folder: str) -> None:
    """Write a tiny SAM."""
    sam.save_model(folder)
    sam.image_processor().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shapes of the attention maps of an image under sdpa."""
    model = transformers.SamModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    with torch.no_grad():
        maps = model.vision_encoder(torch.zeros(1, 3, 32, 32), output_attentions=True).attentions
    return [[*each.shape] for each in maps]

"""SAM's table of positions is a parameter that its two places share."""

import sam
import transformers

CASE = {
    "symptom": "SAM's positional_embedding is a buffer in 4.57.6, and a weight that is trained in 5.0.0",
    "area": "loading and saving",
    "signals": ("gradients", "grads", "parameters", "buffers"),
    "says": (r"positional_embedding",),
    "source": ("SamPositionalEmbedding", "SamModel", "modeling_sam.py", "positional_embedding"),
}


def make(folder: str) -> None:
    """Write a tiny SAM with its processor."""
    sam.save_model(folder)
    sam.image_processor().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the names of the parameters and of the buffers that are tables of positions."""
    model = transformers.SamModel.from_pretrained(folder)
    return {
        "parameters": [n for n, p in model.named_parameters() if "positional_embedding" in n],
        "buffers": [n for n, _ in model.named_buffers() if "positional_embedding" in n],
    }

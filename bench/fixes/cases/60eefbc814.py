"""Emu3 sees the images it is given."""

import emu3
import torch
import transformers

CASE = {
    "symptom": "Emu3ForConditionalGeneration ignores pixel_values: any image gives the same logits",
    "signals": ("logits", "hidden_states", "greedy"),
    "findings": ("SB926",),
    "says": (r"Emu3ForConditionalGeneration.*pixel_values", r"pixel_values.*ignored"),
    "source": ("Emu3ForConditionalGeneration", "modeling_emu3.py"),
}


def make(folder: str) -> None:
    """Write a tiny Emu3, of which 20 tokens stand for codes of images."""
    emu3.make(folder)


def observe(folder: str) -> object:
    """Return whether two images give a text the same logits."""
    model = transformers.Emu3ForConditionalGeneration.from_pretrained(folder).eval()
    torch.manual_seed(1)
    tokens = model.model.get_image_tokens(torch.randn(1, 3, 16, 16), torch.tensor([[16, 16]]))
    ids = torch.tensor([[1, *[emu3.IMAGE] * tokens.numel(), 50, 51]])
    logits = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        inputs = {
            "pixel_values": torch.randn(1, 3, 16, 16),
            "image_sizes": torch.tensor([[16, 16]]),
        }
        with torch.no_grad():
            logits.append(model(input_ids=ids, **inputs).logits)
    return {"two images give the same logits": bool(torch.equal(*logits))}

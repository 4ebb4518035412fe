"""A classifier of DINOv2 with registers takes the mean of patches without the registers."""

import torch
import transformers
from sizes import SMALL

CASE = {
    "symptom": "a classifier of DINOv2 with registers takes its registers into the mean of the patches",
    "signals": ("logits",),
    "source": (
        "Dinov2WithRegistersForImageClassification",
        "modeling_dinov2_with_registers.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny classifier with four registers."""
    config = transformers.Dinov2WithRegistersConfig(
        **{name: value for name, value in SMALL.items() if name != "intermediate_size"},
        image_size=16,
        patch_size=4,
        num_register_tokens=4,
        initializer_range=0.3,
        num_labels=5,
    )
    transformers.Dinov2WithRegistersForImageClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the logits of an image."""
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    pixels = torch.linspace(-1, 1, 768).sin().view(1, 3, 16, 16)
    with torch.no_grad():
        logits = model(pixels).logits
    return [round(value, 3) for value in logits[0].tolist()]

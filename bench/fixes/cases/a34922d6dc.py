"""MobileViT's image processor resizes bicubically by default."""

import numpy as np
import transformers
from PIL import Image
from saved import edit

CASE = {
    "symptom": "MobileViT's image processor resizes bilinearly where its file does not say how",
    "findings": ("SB833",),
    "says": (r"resample",),
    "source": ("MobileViTImageProcessor", "image_processing_mobilevit"),
    "packages": ("torchvision",),
}


def make(folder: str) -> None:
    """Write a tiny MobileViT with an image processor whose file does not say how it resizes."""
    config = transformers.MobileViTConfig(
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        num_attention_heads=2,
        initializer_range=0.2,
    )
    transformers.MobileViTForImageClassification(config).save_pretrained(folder)
    size = {"height": 64, "width": 64}
    transformers.MobileViTImageProcessor(
        size={"shortest_edge": 72}, crop_size=size
    ).save_pretrained(folder)
    edit(folder, "preprocessor_config.json", drop=["resample"])


def observe(folder: str) -> object:
    """Return the filter, and the sum of the pixels of an image."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 255, (96, 120, 3), dtype=np.uint8)
    values = processor(Image.fromarray(pixels), return_tensors="pt")["pixel_values"]
    return {"resample": int(processor.resample), "sum": round(values.double().sum().item(), 1)}

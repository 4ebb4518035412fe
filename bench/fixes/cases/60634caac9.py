"""ConvNeXt's fast image processor resizes bicubically by default, and crops the centre as others do."""

import numpy as np
import transformers
from PIL import Image

CASE = {
    "packages": ("torchvision",),
    "symptom": "ConvNeXt's fast image processor crops one pixel beside the one of later releases",
    "signals": ("inputs", "pixel_values"),
    "findings": ("SB833", "SB839"),
    "says": (r"ConvNextImageProcessor(Fast)?\b.*pixel_values", r"center_crop"),
    "source": ("image_processing_convnext_fast.py", "center_crop"),
}


def make(folder: str) -> None:
    """Write a tiny ConvNeXt with its image processor."""
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 2, 1],
        image_size=64,
        num_labels=5,
        initializer_range=0.3,
    )
    transformers.ConvNextForImageClassification(config).save_pretrained(folder)
    transformers.ConvNextImageProcessorFast(size={"shortest_edge": 64}).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the first column of an image whose red is the number of its column."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True)
    # 73 rows stay 73, of which 64 are taken; of 75 columns eleven are too many: 5 or 6 at the left
    ramp = np.zeros((73, 75, 3), dtype=np.uint8)
    ramp[..., 0] = np.arange(75)
    inputs = processor(Image.fromarray(ramp), do_normalize=False, return_tensors="pt")
    values = inputs["pixel_values"][0, 0, 0] * 255
    return {"first column": round(float(values[0])), "last column": round(float(values[-1]))}

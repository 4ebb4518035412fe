"""EfficientNet's image processor resizes by cubic interpolation where its file names none."""

import numpy as np
import transformers
from saved import edit

CASE = {
    "symptom": "EfficientNet's image processor takes the nearest pixels where its file names no interpolation",
    "signals": ("inputs", "pixel_values", "processor"),
    "says": (r"resample", r"pixel_values"),
    "source": (
        "EfficientNetImageProcessor",
        "image_processing_efficientnet",
        "resample",
        "pixel_values",
    ),
}


def make(folder: str) -> None:
    """Write a tiny EfficientNet and an image processor without an interpolation."""
    config = transformers.EfficientNetConfig(
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.25,
        hidden_dim=32,
        kernel_sizes=[3, 3],
        in_channels=[8, 8],
        out_channels=[8, 16],
        depthwise_padding=[],
        strides=[1, 2],
        num_block_repeats=[1, 1],
        expand_ratios=[1, 2],
        num_labels=3,
    )
    transformers.EfficientNetForImageClassification(config).save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.EfficientNetImageProcessor(size=size, crop_size=size).save_pretrained(folder)
    edit(folder, "preprocessor_config.json", drop=["resample"])


def observe(folder: str) -> object:
    """Return the interpolation, and a sum over an image of another size."""
    processor = transformers.EfficientNetImageProcessor.from_pretrained(folder)
    image = np.random.default_rng(0).integers(0, 256, (45, 53, 3), np.uint8)
    pixels = processor(image, return_tensors="np")["pixel_values"]
    return [int(processor.resample), round(float(np.abs(pixels).sum()), 1)]

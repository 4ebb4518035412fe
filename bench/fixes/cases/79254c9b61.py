"""Fast image processors normalise pixels that they do not rescale."""

import numpy as np
import transformers
from PIL import Image
from sizes import TOWER

CASE = {
    "packages": ("torchvision",),
    "symptom": "a fast image processor with do_rescale false raises TypeError for every image",
    "area": "processor",
    "findings": ("SB836",),
    "failure": "should be a float tensor",
    "says": (r"should be a float tensor", r"rescale_and_normalize"),
    "source": ("rescale_and_normalize", "BaseImageProcessorFast", "image_processing_utils_fast.py"),
}


def make(folder: str) -> None:
    """Write a tiny ViT whose image processor normalises numbers of 0 to 255."""
    config = transformers.ViTConfig(**TOWER, image_size=16, patch_size=8, initializer_range=0.3)
    transformers.ViTModel(config).save_pretrained(folder)
    transformers.ViTImageProcessorFast(
        size={"height": 16, "width": 16},
        do_rescale=False,
        image_mean=[127.5, 127.5, 127.5],
        image_std=[127.5, 127.5, 127.5],
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the mean of the pixels of an image, or the exception."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8))
    pixels = processor(image, return_tensors="pt")["pixel_values"]
    return round(float(pixels.mean()), 2)

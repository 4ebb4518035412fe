"""Normalisation asks for a sequence of means; an array, which was one of the iterables, is none."""

import numpy as np
import transformers
from PIL import Image
from sizes import SMALL

CASE = {
    "symptom": "an image processor that is given image_mean and image_std as arrays raises ValueError",
    "findings": ("SB836",),
    "failure": "could not be broadcast",
    "says": (r"image_mean.*array", r"could not be broadcast"),
    "source": ("normalize", "image_transforms.py"),
}


def make(folder: str) -> None:
    """Write a tiny ViT with its image processor."""
    config = transformers.ViTConfig(
        **SMALL,
        image_size=16,
        patch_size=4,
        num_labels=5,
        initializer_range=0.3,
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the first pixel of a grey image, normalised by arrays."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    image = Image.new("RGB", (16, 16), (102, 102, 102))
    mean, std = np.array([0.4, 0.3, 0.2]), np.array([0.5, 0.5, 0.5])
    values = processor(image, image_mean=mean, image_std=std)["pixel_values"][0]
    return [round(float(value), 4) for value in values[:, 0, 0]]

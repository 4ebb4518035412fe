"""GLM-4V's fast image processor gives each image its own size."""

import glm4v
import numpy as np
import transformers
from PIL import Image

CASE = {
    "made": "4.57.1",
    "symptom": "GLM-4V's fast image processor enlarges all images of a call to the largest of them",
    "packages": ("torchvision",),
    "findings": ("SB833",),
    "says": (r"image_grid_thw", r"(two|several|both) (images|sizes)"),
    "source": ("Glm4vImageProcessorFast", "image_processing_glm4v_fast.py"),
}


def make(folder: str) -> None:
    """Write a tiny GLM-4V with its fast image processor."""
    glm4v.make(folder, transformers.Glm4vImageProcessorFast, 2 * 112 * 112)


def observe(folder: str) -> object:
    """Return the grids of two images of different sizes in one call."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True)
    generator = np.random.default_rng(0)
    images = [
        Image.fromarray(generator.integers(0, 255, (*size, 3), dtype=np.uint8))
        for size in ((56, 56), (84, 112))
    ]
    try:
        return processor(images, return_tensors="pt")["image_grid_thw"].tolist()
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}"[:80]

"""SAM's image processor makes RGB of a gray image."""

import numpy as np
import sam
import transformers
from PIL import Image

CASE = {
    "symptom": "SAM's image processor does not make RGB of gray and RGBA images: it raises",
    "findings": ("SB836",),
    "says": (r"(gray|RGBA|palette|mode L\b).*(raises|raised)",),
    "source": ("SamImageProcessor", "image_processing_sam.py", "_preprocess_image"),
}


def make(folder: str) -> None:
    """Write a tiny SAM with its image processor."""
    sam.save_model(folder)
    sam.image_processor().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the pixel values of images in two modes, or the exception."""
    processor = transformers.SamImageProcessor.from_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    return {mode: shape(processor, image.convert(mode)) for mode in ("RGB", "L", "RGBA")}


def shape(processor: transformers.SamImageProcessor, image: Image.Image) -> object:
    """Return the shape of the pixel values of an image, or the exception."""
    try:
        return list(processor(image, return_tensors="pt")["pixel_values"].shape)
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]

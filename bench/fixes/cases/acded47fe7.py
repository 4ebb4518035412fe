"""LLaVA-NeXT pads an image to its whole resolution where an odd number of pixels is missing."""

import llava_next
import numpy as np
import transformers
from PIL import Image

CASE = {
    "symptom": "LLaVA-NeXT's last tiles lack a row of padding and are stretched: other pixel values",
    "area": "processor",
    "findings": ("SB833", "SB839"),
    "signals": ("inputs", "pixel_values"),
    "says": (r"LlavaNextImageProcessor\b.*pixel_values", r"_pad_for_patching"),
    "source": ("_pad_for_patching", "image_processing_llava_next.py"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA-NeXT with its processor."""
    llava_next.make(folder)


def observe(folder: str) -> object:
    """Return the rows of padding below a white image that needs nine rows more."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((34, 40, 3), 255, np.uint8))
    inputs = processor(images=image, text="<image> what is this ?", return_tensors="pt")
    lowest = inputs["pixel_values"][0, -1, 0, :, 0]
    return {"rows of padding in the last tile": int((lowest == lowest.min()).sum())}

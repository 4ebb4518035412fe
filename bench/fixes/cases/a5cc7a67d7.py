"""LLaVA-OneVision's image processor takes its size as the length of an edge."""

import llava_onevision
import numpy as np
import transformers
from PIL import Image

CASE = {
    "packages": ("torchvision",),
    "symptom": "LLaVA-OneVision's image processor raises KeyError: 'height' where its size is a shortest_edge",
    "area": "processor",
    "failure": "KeyError: 'height'",
    "says": (r"KeyError: '?height'?", r"shortest_edge"),
    "source": ("LlavaOnevisionImageProcessor", "image_processing_llava_onevision.py"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA-OneVision with its processor."""
    llava_onevision.make(folder, {"shortest_edge": 16})


def observe(folder: str) -> object:
    """Return the shape of the pixel values of an image, or the exception."""
    processor = transformers.LlavaOnevisionImageProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((32, 24, 3), 200, np.uint8))
    return [*processor(image, return_tensors="pt")["pixel_values"].shape]

"""The processor of LLaVA-NeXT returns images that it does not pad."""

import llava_next
import numpy as np
import transformers
from PIL import Image

CASE = {
    "symptom": "LLaVA-NeXT's image processor raises UnboundLocalError where do_pad is false",
    "failure": "processed_images",
    "says": (r"processed_images", r"UnboundLocalError"),
    "source": ("LlavaNextImageProcessor", "image_processing_llava_next.py"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA-NeXT with a processor that does not pad."""
    llava_next.make(folder, do_pad=False)


def observe(folder: str) -> object:
    """Return how many tiles it makes of an image, or the exception."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((34, 40, 3), 255, np.uint8))
    inputs = processor.image_processor(image)
    return {"tiles": len(inputs["pixel_values"][0])}

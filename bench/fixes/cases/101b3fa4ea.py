"""LLaVA-OneVision does not cut the images of a text with several ones."""

import llava_onevision
import numpy as np
import transformers

CASE = {
    "packages": ("torchvision",),
    "symptom": "LLaVA-OneVision cuts each image of a text with two images into patches: more tokens, another answer",
    "area": "processor",
    "says": (r"batch_num_images", r"(two|several) images"),
    "source": (
        "LlavaOnevisionImageProcessor",
        "LlavaOnevisionProcessor",
        "image_processing_llava_onevision",
        "processing_llava_onevision.py",
        "pack_image_features",
    ),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA-OneVision with its processor."""
    llava_onevision.make(folder, {"height": 16, "width": 16})


def observe(folder: str) -> object:
    """Return the tokens and the shape of the pixels of a text with two images."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(2)]
    inputs = processor(images=[images], text=["what <image> <image>"], return_tensors="pt")
    return [inputs["input_ids"].shape[1], list(inputs["pixel_values"].shape)]

"""The fast image processor of EoMT keeps the images if it is not to resize them."""

import numpy as np
import transformers
from PIL import Image

CASE = {
    "symptom": "the fast image processor of EoMT raises KeyError with do_resize=False",
    "packages": ("torchvision", "scipy"),
    "findings": ("SB836", "SB932"),
    "failure": "KeyError",
    "says": (r"KeyError",),
    "source": ("EomtImageProcessorFast", "image_processing_eomt_fast.py", "reorder_images"),
}


def make(folder: str) -> None:
    """Write a tiny EoMT with a fast image processor that does not resize."""
    config = transformers.EomtConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=64,
        patch_size=16,
        num_upscale_blocks=1,
        num_blocks=1,
        num_queries=4,
        num_register_tokens=1,
        num_labels=4,
    )
    transformers.EomtForUniversalSegmentation(config).save_pretrained(folder)
    transformers.EomtImageProcessorFast(
        do_resize=False,
        size={"shortest_edge": 64, "longest_edge": 64},
        do_split_image=False,
        do_pad=False,
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the pixel values of an image that has the right size already."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True)
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    return list(
        processor(images=Image.fromarray(pixels), return_tensors="pt")["pixel_values"].shape
    )

"""The image processor of GLM-4V keeps the size of its file."""

import numpy as np
import transformers
from PIL import Image
from sizes import GROUPED

CASE = {
    "packages": ("torchvision",),
    "symptom": "GLM-4V's slow image processor ignores a size, of its file and of a call: too many patches",
    "findings": ("SB833",),
    "says": (r"longest_edge", r"image_grid_thw"),
    "source": ("Glm4vImageProcessor", "image_processing_glm4v.py", "smart_resize"),
}
SIZE = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56 * 2}


def make(folder: str) -> None:
    """Write a tiny GLM-4V with a slow image processor that makes images small."""
    config = transformers.Glm4vConfig(
        text_config={
            "vocab_size": 64,
            **GROUPED,
            "pad_token_id": 0,
            "eos_token_id": 2,
            "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "out_hidden_size": 32,
            "image_size": 56,
            "patch_size": 14,
        },
        image_token_id=5,
        video_token_id=6,
        image_start_token_id=7,
        image_end_token_id=8,
    )
    transformers.Glm4vForConditionalGeneration(config).save_pretrained(folder)
    processor = transformers.Glm4vImageProcessor()
    processor.size = SIZE
    processor.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the size of the processor, and the grid of an image with a size of the call."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=False)
    pixels = np.random.default_rng(0).integers(0, 255, (240, 320, 3), dtype=np.uint8)
    images = processor(Image.fromarray(pixels), size=SIZE, return_tensors="pt")
    return [processor.size, images["image_grid_thw"].tolist()]

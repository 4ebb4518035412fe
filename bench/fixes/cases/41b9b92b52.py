"""min_pixels and max_pixels of the Qwen2-VL image processor count."""

import numpy as np
from PIL import Image
from sizes import TOWER
from transformers import (
    AutoImageProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
)

CASE = {
    "symptom": "processor.max_pixels = N has no effect: images have too many patches",
    "signals": ("processor", "pixel_values"),
    "says": ("max_pixels", "image_grid_thw"),
    "source": ("Qwen2VLImageProcessor", "image_processing_qwen2_vl"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = Qwen2VLConfig(
        vocab_size=64,
        **TOWER,
        num_key_value_heads=2,
        rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]},
        vision_config={"depth": 1, "embed_dim": 32, "num_heads": 4, "hidden_size": 32},
        image_token_id=60,
        video_token_id=61,
        vision_start_token_id=62,
        vision_end_token_id=63,
    )
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    Qwen2VLImageProcessor().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    processor = AutoImageProcessor.from_pretrained(folder)
    image = Image.fromarray(np.arange(280 * 280 * 3, dtype=np.uint8).reshape(280, 280, 3))
    first = processor(image, return_tensors="np")["image_grid_thw"].tolist()
    processor.min_pixels, processor.max_pixels = 56 * 56, 112 * 112
    second = processor(image, return_tensors="np")["image_grid_thw"].tolist()
    return {"grid": first, "grid with smaller max_pixels": second}

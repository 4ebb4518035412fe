"""SAM's image processor makes RGB of a gray image.

https://github.com/huggingface/transformers/pull/36369
"""

import numpy as np
import transformers
from PIL import Image

CASE = {
    "before": "4.49.0",
    "after": "4.50.0",
    "made": "4.49.0",
    "symptom": "SAM's image processor does not make RGB of gray and RGBA images: it raises",
    "area": "processor",
    "findings": ("SB836",),
    "says": (r"(gray|RGBA|palette|mode L\b).*(raises|raised)",),
    "source": ("SamImageProcessor", "image_processing_sam.py", "_preprocess_image"),
}


def make(folder: str) -> None:
    """Write a tiny SAM with its image processor."""
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 32,
            "output_channels": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
            "mlp_dim": 48,
            "window_size": 2,
            "global_attn_indexes": [0],
            "num_pos_feats": 8,
        },
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 32,
            "patch_size": 8,
            "mask_input_channels": 4,
            "num_point_embeddings": 4,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 24,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
            "iou_head_depth": 2,
        },
    )
    transformers.SamModel(config).save_pretrained(folder)
    transformers.SamImageProcessor(
        size={"longest_edge": 32}, pad_size={"height": 32, "width": 32}
    ).save_pretrained(folder)


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

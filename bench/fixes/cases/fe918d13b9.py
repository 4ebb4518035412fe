"""Qwen2-VL's image processor fills up the frames of a video to a multiple of temporal_patch_size."""

import numpy as np
import transformers
from sizes import TEXT

CASE = {
    "symptom": "Qwen2-VL's image processor raises for a video of 6 frames where temporal_patch_size is 4",
    "failure": "cannot reshape array of size",
    "says": (r"cannot reshape array of size",),
    "source": ("Qwen2VLImageProcessor", "image_processing_qwen2_vl.py"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2-VL that takes four frames at once, with its image processor."""
    config = transformers.Qwen2VLConfig(
        **TEXT,
        max_position_embeddings=256,
        rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]},
        image_token_id=60,
        video_token_id=61,
        vision_start_token_id=62,
        vision_end_token_id=63,
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 4,
            "patch_size": 4,
            "temporal_patch_size": 4,
        },
    )
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    transformers.Qwen2VLImageProcessor(
        patch_size=4, temporal_patch_size=4, min_pixels=64, max_pixels=1024
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the grid of a video by its number of frames, or the exception."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=False)
    grids = {}
    for frames in (4, 5, 6):
        video = [np.full((16, 16, 3), 40 * place, np.uint8) for place in range(frames)]
        try:
            inputs = processor(images=None, videos=[video], return_tensors="np")
            grids[frames] = inputs["video_grid_thw"].tolist()
        except ValueError as error:
            grids[frames] = f"ValueError: {error}".splitlines()[0]
    return grids

"""The processor of Qwen3-VL takes a video of one frame."""

import numpy as np
import qwen3_vl
import transformers

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen3-VL's processor raises ValueError for a video of one frame, and rounds odd numbers of frames down",
    "failure": "must be larger than temporal_factor",
    "says": (r"temporal_factor", r"one frame"),
    "source": ("Qwen3VLVideoProcessor", "video_processing_qwen3_vl.py", "smart_resize"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen3-VL with its processor."""
    qwen3_vl.make(folder)


def observe(folder: str) -> object:
    """Return the grids of videos of one frame and of five."""
    processor = transformers.AutoProcessor.from_pretrained(folder).video_processor
    grids = []
    for frames in (1, 5):
        video = np.random.default_rng(0).integers(0, 255, (frames, 32, 32, 3), dtype=np.uint8)
        try:
            inputs = processor([video], do_sample_frames=False, return_tensors="pt")
            grids.append(inputs["video_grid_thw"].tolist())
        except ValueError as error:
            grids.append(f"ValueError: {error}")
    return grids

"""The processor of Qwen2.5-VL takes the seconds of a video's grid from the video's metadata."""

import numpy as np
import qwen2_vl
import transformers
from sizes import QWEN2_5_VISION

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen2.5-VL takes every video for one of two frames a second, whatever its metadata say",
    "area": "processor",
    "signals": ("inputs",),
    "findings": ("SB833",),
    "says": (r"second_per_grid_ts",),
    "source": ("Qwen2_5_VLProcessor", "processing_qwen2_5_vl.py", "sampled_fps"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-VL with its processor."""
    qwen2_vl.save_processor(transformers.Qwen2_5_VLProcessor, qwen2_vl.tokenizer(), folder)
    vision = {**QWEN2_5_VISION, "tokens_per_second": 4}
    config = transformers.Qwen2_5_VLConfig(
        text_config=qwen2_vl.TEXT, vision_config=vision, **qwen2_vl.IDS
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the seconds of a grid of a video of one frame a second: two frames make a grid."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    frames = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), dtype=np.uint8)
    metadata = {
        "fps": 1.0,
        "total_num_frames": 8,
        "duration": 8.0,
        "frames_indices": list(range(8)),
    }
    inputs = processor(
        text=["<|vision_start|><|video_pad|><|vision_end|>what is this?"],
        videos=[frames],
        video_metadata=[metadata],
        do_sample_frames=False,
        return_tensors="pt",
    )
    return {"seconds": [float(second) for second in inputs["second_per_grid_ts"]]}

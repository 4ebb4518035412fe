"""The processor of Qwen3-VL says when the frames of a video were taken."""

import numpy as np
import qwen3_vl
import transformers

CASE = {
    "packages": ("torchvision",),
    "area": "processor",
    "symptom": "Qwen3-VL's processor puts other seconds before frames where a patch merges four of them",
    "says": (r"seconds", r"timestamps?", r"video.*input_ids", r"input_ids.*video"),
    "source": ("Qwen3VLProcessor", "processing_qwen3_vl.py", "_calculate_timestamps"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen3-VL whose patches have four frames."""
    qwen3_vl.make(folder, 4)


def observe(folder: str) -> object:
    """Return the text that a video of eight frames, two of a second, becomes."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    inputs = processor(
        text="<|vision_start|><|video_pad|><|vision_end|>",
        videos=[video],
        do_sample_frames=False,
        video_metadata=[{"fps": 2.0, "total_num_frames": 8, "frames_indices": [*range(8)]}],
    )
    return processor.tokenizer.decode(inputs["input_ids"][0])

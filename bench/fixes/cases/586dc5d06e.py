"""GLM-4V takes the timestamps of a video's frames from those that it has sampled."""

import glm4v
import numpy as np
import transformers
from transformers.video_utils import VideoMetadata

CASE = {
    "before": "4.56.0",
    "after": "4.56.1",
    "symptom": "GLM-4V's processor raises TypeError for a video that comes as an array with its frames per second",
    "packages": ("torchvision",),
    "signals": ("inputs", "processor"),
    "failure": "'NoneType' object is not iterable",
    "says": (r"VideoMetadata", r"frames_indices", r"'NoneType' object is not iterable"),
    "source": (
        "timestamps",
        "VideoMetadata",
        "_decode_and_sample_videos",
        "video_utils.py",
        "video_processing_utils.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny GLM-4V with its processor."""
    glm4v.make(folder, transformers.Glm4vImageProcessor, 2 * 56 * 56)


def observe(folder: str) -> object:
    """Return the grid of a video and its number of ids, or the exception, per kind of metadata."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.stack([np.full((56, 56, 3), 10 * place, np.uint8) for place in range(16)])
    facts = {"total_num_frames": len(video), "fps": 4.0, "duration": 4.0}
    text = "<|begin_of_video|><|video|><|end_of_video|> what is this ?"
    seen = {}
    for name, metadata in {
        "dict": [facts],
        "VideoMetadata": VideoMetadata(**facts),
        "all frames": [facts | {"frames_indices": list(range(len(video)))}],
    }.items():
        try:
            inputs = processor(
                text=text, videos=[video], video_metadata=metadata, return_tensors="pt"
            )
        except Exception as error:  # noqa: BLE001  what a user sees
            seen[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        ids = inputs["input_ids"][0].tolist()
        stamps = [word for word in processor.tokenizer.convert_ids_to_tokens(ids) if word.isdigit()]
        seen[name] = {"grid": inputs["video_grid_thw"].tolist(), "seconds": stamps}
    return seen

"""GLM-4V takes the seconds of a text's second video from that video."""

import glm4v
import numpy as np
import transformers

CASE = {
    "symptom": "GLM-4V's processor writes the seconds of the first video between the frames of the second one",
    "area": "processor",
    "packages": ("torchvision",),
    "says": (
        r"(?i)(two|second|several|2) videos",
        r"(?i)videos? of other (frames|speed|seconds)",
        r"timestamps?",
    ),
    "source": ("Glm4vProcessor", "processing_glm4v.py", "video_metadata", "timestamps"),
}


def make(folder: str) -> None:
    """Write a tiny GLM-4V with its processor."""
    glm4v.make(folder, transformers.Glm4vImageProcessor, 2 * 56 * 56)


def observe(folder: str) -> object:
    """Return the seconds in the ids of a text with two videos, of which one is slower."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.stack([np.full((56, 56, 3), 10 * place, np.uint8) for place in range(8)])
    facts = [
        {
            "total_num_frames": len(video),
            "fps": fps,
            "duration": len(video) / fps,
            "frames_indices": list(range(len(video))),
        }
        for fps in (4.0, 2.0)
    ]
    place = "<|begin_of_video|><|video|><|end_of_video|>"
    inputs = processor(
        text=f"{place} {place} what is this ?",
        videos=[video, video],
        video_metadata=facts,
        do_sample_frames=False,
        return_tensors="pt",
    )
    words = processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    return [word for word in words if word.isdigit()]

"""The processor of LLaVA-OneVision takes a video without an option for tensors."""

import llava_onevision
import numpy as np
import transformers

CASE = {
    "symptom": "the processor of LLaVA-OneVision raises ValueError for a video without return_tensors",
    "findings": ("SB836",),
    "failure": "Invalid image type",
    "says": (r"video.*Invalid image type", r"LlavaOnevisionProcessor.*video"),
    "source": ("LlavaOnevisionProcessor", "processing_llava_onevision.py"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA-OneVision with its processor."""
    llava_onevision.make(folder, {"height": 16, "width": 16})


def observe(folder: str) -> object:
    """Return the number of tokens of a video."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.random.default_rng(0).integers(0, 256, (4, 20, 20, 3), dtype=np.uint8)
    inputs = processor(text="what <video>", videos=[*video])
    return {"tokens": len(np.ravel(inputs["input_ids"]))}

"""The video processor of SmolVLM resizes with the filter of its settings."""

import numpy as np
import smolvlm
import torch
import transformers

CASE = {
    "made": "5.6.0",
    "symptom": "SmolVLM resizes videos with bilinear instead of its own filter: other pixel values",
    "packages": ("torchvision", "num2words"),
    "findings": ("SB833", "SB839"),
    "signals": ("pixel_values",),
    "says": (r"(?i)bilinear|bicubic|lanczos",),
    "source": ("SmolVLMVideoProcessor", "video_processing_smolvlm.py"),
}


def make(folder: str) -> None:
    """Write a tiny SmolVLM with tokenizer, image processor and video processor."""
    image_processor = transformers.SmolVLMImageProcessor(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    smolvlm.save(image_processor, folder)


def observe(folder: str) -> object:
    """Return the filter that computes the nearest pixel values to those of the processor."""
    processor = transformers.SmolVLMVideoProcessor.from_pretrained(folder)
    video = np.random.default_rng(0).integers(0, 255, (2, 56, 56, 3), dtype=np.uint8)
    options = {"return_tensors": "pt", "do_normalize": False, "do_pad": False, "do_rescale": False}
    given = processor(videos=[video], **options)["pixel_values"].float()
    frames = torch.tensor(video).permute(0, 3, 1, 2)
    size = list(given.shape[-2:])
    distances = {}
    for name in ("bilinear", "bicubic"):
        resized = torch.nn.functional.interpolate(
            frames.float(), size, mode=name, antialias=True
        ).clamp(0, 255)
        distances[name] = float((given.reshape(resized.shape) - resized).abs().mean())
    return {"settings": int(processor.resample), "computed": min(distances, key=distances.get)}

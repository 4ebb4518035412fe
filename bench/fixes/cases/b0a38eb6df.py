"""A processor says at which characters of the expanded text each of several images stands."""

import numpy as np
import transformers
from llava import make as make_llava
from tokens import NAMED, SPACES, WORDS, tokenizer_of

CASE = {
    "before": "5.10.2",
    "after": "5.10.4",
    "packages": ("torchvision",),
    "symptom": "text_replacement_offsets of a text with two images give a wrong new_span for the second",
    "says": (r"new_span", r"replacement_offsets"),
    "source": ("get_text_with_replacements", "processing_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA with its processor."""
    tokenizer = tokenizer_of([*WORDS, "<image>"], SPACES, added=["<image>"], **NAMED)
    size = {"height": 16, "width": 16}
    transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=size),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    make_llava(folder)


def observe(folder: str) -> object:
    """Return whether each new_span holds what replaced its placeholder."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    images = [
        np.random.default_rng(seed).integers(0, 255, (16, 16, 3), dtype=np.uint8) for seed in (0, 1)
    ]
    inputs = processor(
        images=images,
        text=["the <image> and <image> cat"],
        text_kwargs={"return_text_replacement_offsets": True},
    )
    spans = [list(offset["new_span"]) for offset in inputs["text_replacement_offsets"][0]]
    return {"spans": spans}

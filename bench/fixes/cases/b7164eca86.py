"""Qwen2-VL takes rows of text after a batch of images of another size."""

import numpy as np
import qwen2_vl
import torch
import transformers
from PIL import Image

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen2-VL raises for three rows of text after two rows with images: rope_deltas are kept",
    "findings": ("SB712",),
    "failure": "must match the size of tensor b",
    "says": (r"rope_deltas",),
    "source": ("compute_3d_position_ids", "modeling_qwen2_vl.py"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2-VL with its processor."""
    tokenizer = transformers.Qwen2Tokenizer(vocab=qwen2_vl.VOCAB, merges=[], **qwen2_vl.NAMED)
    qwen2_vl.save_processor(transformers.Qwen2VLProcessor, tokenizer, folder)
    text = dict(qwen2_vl.TEXT)
    del text["rope_scaling"]
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [2, 1, 1],
    }
    config = transformers.Qwen2VLConfig(
        text_config=text, vision_config=qwen2_vl.VISION, **qwen2_vl.IDS
    )
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of three rows of text after two rows with images."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder).eval()
    pixels = np.random.default_rng(0).integers(0, 255, (2, 16, 16, 3), dtype=np.uint8)
    images = processor(
        images=[Image.fromarray(image) for image in pixels],
        text=["<|vision_start|><|image_pad|><|vision_end|>what is this?"] * 2,
        return_tensors="pt",
    )
    texts = processor(text=["good day"] * 3, return_tensors="pt")
    with torch.no_grad():
        model(**images, use_cache=False)
        try:
            return list(model(**texts, use_cache=False).logits.shape)
        except RuntimeError as error:
            return f"RuntimeError: {error}"

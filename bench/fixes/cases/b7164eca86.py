"""Qwen2-VL takes rows of text after a batch of images of another size.

https://github.com/huggingface/transformers/pull/44873
"""

import json
import sys

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

CASE = {
    "before": "5.3.0",
    "after": "5.4.0",
    "made": "5.3.0",
    "packages": ("torchvision",),
    "symptom": "Qwen2-VL raises for three rows of text after two rows with images: rope_deltas are kept",
    "area": "computation",
    "findings": ("SB712",),
    "failure": "must match the size of tensor b",
    "says": (r"rope_deltas",),
    "source": ("compute_3d_position_ids", "modeling_qwen2_vl.py"),
}
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PATCHES = {
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 64,
    "max_pixels": 256,
}


def make(folder: str) -> None:
    """Write a tiny Qwen2-VL with its processor."""
    torch.manual_seed(0)
    words = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *SPECIAL]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=vocab,
        merges=[],
        additional_special_tokens=SPECIAL,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(**PATCHES),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(**PATCHES),
    ).save_pretrained(folder)
    text = {
        "vocab_size": len(words),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 1, 1],
        },
    }
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 32,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    config = transformers.Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=vocab["<|image_pad|>"],
        video_token_id=vocab["<|video_pad|>"],
        vision_start_token_id=vocab["<|vision_start|>"],
        vision_end_token_id=vocab["<|vision_end|>"],
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


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))

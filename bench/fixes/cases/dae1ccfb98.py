"""GLM-4V's fast image processor gives each image its own size.

https://github.com/huggingface/transformers/pull/40483
"""

import numpy as np
import transformers
from PIL import Image
from sizes import GROUPED
from tokens import tokenizer_of

CASE = {
    "before": "4.56.2",
    "after": "4.57.1",
    "made": "4.57.1",
    "symptom": "GLM-4V's fast image processor enlarges all images of a call to the largest of them",
    "area": "processor",
    "packages": ("torchvision",),
    "findings": ("SB833",),
    "says": (r"image_grid_thw", r"(two|several|both) (images|sizes)"),
    "source": ("Glm4vImageProcessorFast", "image_processing_glm4v_fast.py"),
}
SPECIAL = [
    "<pad>",
    "</s>",
    "<unk>",
    "<|image|>",
    "<|video|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
]


def make(folder: str) -> None:
    """Write a tiny GLM-4V with its processor."""
    words = [*SPECIAL, "what", "is", "this", "image", "?", "0", "1", "2", "3", "4"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(
        words, added=SPECIAL, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    size = {"shortest_edge": 28 * 28, "longest_edge": 2 * 112 * 112}
    transformers.Glm4vProcessor(
        image_processor=transformers.Glm4vImageProcessorFast(size=size),
        video_processor=transformers.Glm4vVideoProcessor(size=size),
        tokenizer=tokenizer,
    ).save_pretrained(folder)
    ids = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    config = transformers.Glm4vConfig(
        text_config={
            "vocab_size": 64,
            **GROUPED,
            "max_position_embeddings": 2048,
            "initializer_range": 0.3,
            "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]},
            "pad_token_id": 0,
            "eos_token_id": 1,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "image_size": 56,
            "patch_size": 14,
        },
        **{name: vocab[word] for name, word in ids.items()},
    )
    transformers.Glm4vForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the grids of two images of different sizes in one call."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True)
    generator = np.random.default_rng(0)
    images = [
        Image.fromarray(generator.integers(0, 255, (*size, 3), dtype=np.uint8))
        for size in ((56, 56), (84, 112))
    ]
    try:
        return processor(images, return_tensors="pt")["image_grid_thw"].tolist()
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}"[:80]

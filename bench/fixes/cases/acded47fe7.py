"""LLaVA-NeXT pads an image to its whole resolution where an odd number of pixels is missing."""

import numpy as np
import transformers
from PIL import Image
from sizes import SMALL, TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "symptom": "LLaVA-NeXT's last tiles lack a row of padding and are stretched: other pixel values",
    "area": "processor",
    "findings": ("SB833", "SB839"),
    "signals": ("inputs", "pixel_values"),
    "says": (r"LlavaNextImageProcessor\b.*pixel_values", r"_pad_for_patching"),
    "source": ("_pad_for_patching", "image_processing_llava_next.py"),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
TILE = 30


def make(folder: str) -> None:
    """Write a tiny LLaVA-NeXT with its processor."""
    words = [*SPECIAL, "what", "is", "this", "image", ":", "?", "\n"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, added=SPECIAL, **NAMED)
    grid = [[TILE, 2 * TILE], [2 * TILE, TILE], [2 * TILE, 2 * TILE]]
    image_processor = transformers.LlavaNextImageProcessor(
        size={"shortest_edge": TILE},
        crop_size={"height": TILE, "width": TILE},
        image_grid_pinpoints=grid,
    )
    transformers.LlavaNextProcessor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=6,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    vision = {
        "model_type": "clip_vision_model",
        **SMALL,
        "image_size": TILE,
        "patch_size": 6,
        "projection_dim": 32,
    }
    text = {"model_type": "llama", **TEXT, "pad_token_id": 0}
    config = transformers.LlavaNextConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=vocab["<image>"],
        image_grid_pinpoints=grid,
    )
    transformers.LlavaNextForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the rows of padding below a white image that needs nine rows more."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((34, 40, 3), 255, np.uint8))
    inputs = processor(images=image, text="<image> what is this ?", return_tensors="pt")
    lowest = inputs["pixel_values"][0, -1, 0, :, 0]
    return {"rows of padding in the last tile": int((lowest == lowest.min()).sum())}

"""The processor of LLaVA-NeXT returns images that it does not pad."""

import numpy as np
import transformers
from PIL import Image
from sizes import SMALL, TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "symptom": "LLaVA-NeXT's image processor raises UnboundLocalError where do_pad is false",
    "failure": "processed_images",
    "says": (r"processed_images", r"UnboundLocalError"),
    "source": ("LlavaNextImageProcessor", "image_processing_llava_next.py"),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
TILE = 30


def make(folder: str) -> None:
    """Write a tiny LLaVA-NeXT with a processor that does not pad."""
    words = [*SPECIAL, "what", "is", "this", "image", ":", "?", "\n"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, added=SPECIAL, **NAMED)
    grid = [[TILE, 2 * TILE], [2 * TILE, TILE], [2 * TILE, 2 * TILE]]
    image_processor = transformers.LlavaNextImageProcessor(
        size={"shortest_edge": TILE},
        crop_size={"height": TILE, "width": TILE},
        image_grid_pinpoints=grid,
        do_pad=False,
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
    """Return how many tiles it makes of an image, or the exception."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((34, 40, 3), 255, np.uint8))
    try:
        inputs = processor.image_processor(image)
    except UnboundLocalError as error:
        return f"UnboundLocalError: {error}"
    return {"tiles": len(inputs["pixel_values"][0])}

"""LLaVA-OneVision does not cut the images of a text with several ones.

https://github.com/huggingface/transformers/pull/38084
"""

import numpy as np
import transformers
from sizes import GROUPED
from tokens import NAMED, SPACES, tokenizer_of

CASE = {
    "before": "4.52.4",
    "after": "4.53.0",
    "made": "4.52.4",
    "packages": ("torchvision",),
    "symptom": "LLaVA-OneVision cuts each image of a text with two images into patches: more tokens, another answer",
    "area": "processor",
    "says": (r"batch_num_images", r"(two|several) images"),
    "source": (
        "LlavaOnevisionImageProcessor",
        "LlavaOnevisionProcessor",
        "image_processing_llava_onevision",
        "processing_llava_onevision.py",
        "pack_image_features",
    ),
}
SPECIAL = [*NAMED.values(), "<image>", "<video>"]


def make(folder: str) -> None:
    """Write a tiny LLaVA-OneVision with its processor."""
    words = [*SPECIAL, "what", "is", "this"]
    tokenizer = tokenizer_of(words, SPACES, additional_special_tokens=SPECIAL[4:], **NAMED)
    size = {"height": 16, "width": 16}
    pinpoints = [[16, 16], [16, 32], [32, 16], [32, 32]]
    transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size=size, image_grid_pinpoints=pinpoints
        ),
        video_processor=transformers.LlavaOnevisionVideoProcessor(size=size),
        tokenizer=tokenizer,
        num_image_tokens=4,
        vision_feature_select_strategy="full",
    ).save_pretrained(folder)
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", "vocab_size": 16, **GROUPED, "initializer_range": 0.3},
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "image_size": 16,
            "patch_size": 8,
            "vision_use_head": False,
        },
        image_grid_pinpoints=pinpoints,
        image_token_index=4,
        video_token_index=5,
    )
    transformers.LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the tokens and the shape of the pixels of a text with two images."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(2)]
    inputs = processor(images=[images], text=["what <image> <image>"], return_tensors="pt")
    return [inputs["input_ids"].shape[1], list(inputs["pixel_values"].shape)]

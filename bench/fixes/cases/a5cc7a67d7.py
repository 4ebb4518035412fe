"""LLaVA-OneVision's image processor takes its size as the length of an edge.

https://github.com/huggingface/transformers/pull/37988
"""

import numpy as np
import transformers
from PIL import Image
from sizes import GROUPED
from tokens import NAMED, SPACES, tokenizer_of

CASE = {
    "before": "4.51.3",
    "after": "4.52.1",
    "made": "4.51.3",
    "packages": ("torchvision",),
    "symptom": "LLaVA-OneVision's image processor raises KeyError: 'height' where its size is a shortest_edge",
    "area": "processor",
    "failure": "KeyError: 'height'",
    "says": (r"KeyError: '?height'?", r"shortest_edge"),
    "source": ("LlavaOnevisionImageProcessor", "image_processing_llava_onevision.py"),
}
SPECIAL = [*NAMED.values(), "<image>", "<video>"]


def make(folder: str) -> None:
    """Write a tiny LLaVA-OneVision with its processor."""
    words = [*SPECIAL, "what", "is", "this"]
    tokenizer = tokenizer_of(words, SPACES, additional_special_tokens=SPECIAL[4:], **NAMED)
    pinpoints = [[16, 16], [16, 32], [32, 16], [32, 32]]
    transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size={"shortest_edge": 16}, image_grid_pinpoints=pinpoints
        ),
        video_processor=transformers.LlavaOnevisionVideoProcessor(size={"height": 16, "width": 16}),
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
    """Return the shape of the pixel values of an image, or the exception."""
    processor = transformers.LlavaOnevisionImageProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((32, 24, 3), 200, np.uint8))
    try:
        return [*processor(image, return_tensors="pt")["pixel_values"].shape]
    except KeyError as error:
        return f"KeyError: {error}"

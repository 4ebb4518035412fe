"""The processor of LLaVA-OneVision takes a video without an option for tensors."""

import numpy as np
import transformers
from sizes import GROUPED, TOWER
from tokens import NAMED, SPACES, tokenizer_of

CASE = {
    "symptom": "the processor of LLaVA-OneVision raises ValueError for a video without return_tensors",
    "findings": ("SB836",),
    "failure": "Invalid image type",
    "says": (r"video.*Invalid image type", r"LlavaOnevisionProcessor.*video"),
    "source": ("LlavaOnevisionProcessor", "processing_llava_onevision.py"),
}
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>", "<image>", "<video>"]


def make(folder: str) -> None:
    """Write a tiny LLaVA-OneVision with its processor."""
    words = [*SPECIAL, "what", "is", "this"]
    tokenizer = tokenizer_of(words, SPACES, additional_special_tokens=SPECIAL[4:], **NAMED)
    size = {"height": 16, "width": 16}
    processor = transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size=size, image_grid_pinpoints=[[16, 16], [16, 32]]
        ),
        video_processor=transformers.LlavaOnevisionVideoProcessor(size=size),
        tokenizer=tokenizer,
        num_image_tokens=4,
        vision_feature_select_strategy="full",
    )
    processor.save_pretrained(folder)
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", "vocab_size": 16, **GROUPED, "initializer_range": 0.3},
        vision_config={
            "model_type": "siglip_vision_model",
            **TOWER,
            "image_size": 16,
            "patch_size": 8,
            "vision_use_head": False,
        },
        image_grid_pinpoints=[[16, 16], [16, 32]],
        image_token_index=4,
        video_token_index=5,
    )
    transformers.LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens of a video."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.random.default_rng(0).integers(0, 256, (4, 20, 20, 3), dtype=np.uint8)
    try:
        inputs = processor(text="what <video>", videos=[*video])
    except ValueError as error:
        return f"ValueError: {error}".splitlines()[0]
    return {"tokens": len(np.ravel(inputs["input_ids"]))}

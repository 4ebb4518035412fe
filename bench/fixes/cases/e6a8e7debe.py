"""InternVL's processor gives each of two videos its own frames."""

import numpy as np
import transformers
from sizes import TEXT, TOWER
from tokens import NAMED, tokenizer_of

CASE = {
    "symptom": "InternVL's processor drops the first frame of the second video of a call",
    "packages": ("torchvision",),
    "says": (r"(two|2|several) videos.*(pixel_values|frames)",),
    "source": ("InternVLProcessor", "processing_internvl.py"),
}
TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}


def make(folder: str) -> None:
    """Write a tiny InternVL with its processor."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *TOKENS.values(), "what", "is", "this", "Frame", ":"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, extra_special_tokens=TOKENS, **NAMED)
    size = {"height": 16, "width": 16}
    processor = transformers.InternVLProcessor(
        image_processor=transformers.GotOcr2ImageProcessorFast(size=size),
        tokenizer=tokenizer,
        video_processor=transformers.InternVLVideoProcessor(size=size),
        image_seq_length=4,
    )
    processor.save_pretrained(folder)
    config = transformers.InternVLConfig(
        vision_config={**TOWER, "image_size": 16, "patch_size": 4},
        text_config={"model_type": "qwen2", **TEXT},
        image_token_id=vocab["<IMG_CONTEXT>"],
        image_seq_length=4,
    )
    transformers.InternVLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of frames that two videos of two frames become."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    numbers = np.random.default_rng(0)
    videos = [numbers.integers(0, 255, (2, 16, 16, 3), dtype=np.uint8) for _ in range(2)]
    try:
        output = processor(text="<video> <video> what is this", videos=videos, return_tensors="pt")
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return {"frames": output["pixel_values"].shape[0]}

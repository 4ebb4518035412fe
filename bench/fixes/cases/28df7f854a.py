"""A processor is loaded with an image processor that the caller gives."""

import llava
import transformers
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "before": "4.53.0",
    "after": "4.53.1",
    "symptom": "LlavaProcessor.from_pretrained(folder, image_processor=...) raises TypeError: multiple values",
    "failure": "got multiple values for argument 'image_processor'",
    "says": (r"got multiple values for argument",),
    "source": ("from_args_and_dict", "processing_utils.py", "ProcessorMixin"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA with its processor."""
    llava.make(folder)
    tokenizer = tokenizer_of([*WORDS, "<image>"], added=["<image>"], **NAMED)
    size = {"height": 16, "width": 16}
    transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(size=size, crop_size=size),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a part that the caller gives is the processor's, or the exception."""
    processor = transformers.LlavaProcessor.from_pretrained(folder)
    seen = {}
    for name in ("image_processor", "tokenizer"):
        own = getattr(processor, name)
        try:
            again = transformers.LlavaProcessor.from_pretrained(folder, **{name: own})
        except TypeError as error:
            seen[name] = f"TypeError: {error}"
            continue
        seen[name] = getattr(again, name) is own
    return seen

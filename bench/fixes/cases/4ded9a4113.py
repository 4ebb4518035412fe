"""The attention of a config reaches its sub-configs."""

from llava import make  # noqa: F401  a part of the case
from transformers import LlavaForConditionalGeneration

CASE = {
    "symptom": "a config loaded with eager keeps its parts on eager when it is loaded again with sdpa",
    "area": "loading and saving",
    "signals": ("attention",),
    "says": ("attn_implementation",),
    "source": ("_attn_implementation", "configuration_utils.py"),
}


def observe(folder: str) -> object:
    """Return what a user sees."""
    first = LlavaForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    model = LlavaForConditionalGeneration.from_pretrained(
        folder, config=first.config, attn_implementation="sdpa"
    )
    config = model.config
    parts = {"whole": config, "text": config.text_config, "vision": config.vision_config}
    return {name: part._attn_implementation for name, part in parts.items()}

"""The attention of a config reaches its sub-configs.

https://github.com/huggingface/transformers/pull/39423
"""

from sizes import SMALL
from transformers import LlavaConfig, LlavaForConditionalGeneration

CASE = {
    "before": "4.53.3",
    "after": "4.54.0",
    "made": "4.53.3",
    "symptom": "a config loaded with eager keeps its parts on eager when it is loaded again with sdpa",
    "area": "loading and saving",
    "signals": ("attention",),
    "says": ("attn_implementation",),
    "source": ("_attn_implementation", "configuration_utils.py"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = LlavaConfig(
        text_config=SMALL | {"model_type": "llama", "vocab_size": 64, "initializer_range": 0.3},
        vision_config=SMALL
        | {
            "model_type": "clip_vision_model",
            "image_size": 16,
            "patch_size": 8,
            "projection_dim": 32,
        },
        image_token_index=60,
        vision_feature_layer=-1,
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    first = LlavaForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    model = LlavaForConditionalGeneration.from_pretrained(
        folder, config=first.config, attn_implementation="sdpa"
    )
    config = model.config
    parts = {"whole": config, "text": config.text_config, "vision": config.vision_config}
    return {name: part._attn_implementation for name, part in parts.items()}

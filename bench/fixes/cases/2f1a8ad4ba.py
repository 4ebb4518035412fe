"""A dict of attention implementations can be given when a model is loaded.

https://github.com/huggingface/transformers/pull/39984
"""

from sizes import SMALL
from transformers import AutoConfig, LlavaConfig, LlavaForConditionalGeneration

CASE = {
    "before": "4.55.4",
    "after": "4.56.0",
    "made": "4.55.4",
    "symptom": "a config with attn_implementation={...} raises AttributeError",
    "area": "loading and saving",
    "failure": "_attn_implementation_internal",
    "says": ("_attn_implementation",),
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
    wanted = {"": "sdpa", "text_config": "eager"}
    try:
        config = AutoConfig.from_pretrained(folder, attn_implementation=wanted)
        return {"text": config.text_config._attn_implementation}
    except AttributeError as error:
        return f"AttributeError: {error}"

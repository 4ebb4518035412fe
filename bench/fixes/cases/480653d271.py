"""The attention asked of a Mistral 3 reaches its text model and its image tower."""

import transformers
from sizes import SMALL

CASE = {
    "symptom": "AutoConfig.from_pretrained(folder, attn_implementation='eager') leaves Mistral 3's parts on sdpa",
    "says": (r"attn_implementation.*(text|vision).{0,60}sdpa",),
    "source": ("Mistral3Config", "configuration_mistral3.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mistral 3."""
    text = SMALL | {
        "model_type": "mistral",
        "vocab_size": 128,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "initializer_range": 0.3,
    }
    vision = SMALL | {"model_type": "pixtral", "image_size": 32, "patch_size": 4, "head_dim": 8}
    config = transformers.Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=127
    )
    transformers.Mistral3ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the attention of the parts of a model that was asked for eager by its config."""
    config = transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")
    model = transformers.Mistral3ForConditionalGeneration.from_pretrained(folder, config=config)
    config = model.config
    parts = {"whole": config, "text": config.text_config, "vision": config.vision_config}
    return {name: part._attn_implementation for name, part in parts.items()}

"""The config of a Llava is saved and loaded again."""

import transformers
from sizes import GROUPED, TOWER

CASE = {
    "made": "4.49.0",
    "symptom": "a Llava with a Mistral loses head_dim once saved, where it is the default of a large Mistral: its weights do not fit",
    "says": (r"head_dim", r"size mismatch"),
    "source": ("LlavaConfig", "configuration_llava.py", "text_config", "head_dim"),
}


def make(folder: str) -> None:
    """Write a tiny Llava whose heads are not its hidden size by their number."""
    config = transformers.LlavaConfig(
        text_config={
            "model_type": "mistral",
            **GROUPED,
            "head_dim": 128,
            "vocab_size": 64,
            "initializer_range": 0.3,
        },
        vision_config={
            "model_type": "clip_vision_model",
            **TOWER,
            "image_size": 16,
            "patch_size": 8,
            "projection_dim": 16,
        },
        image_token_index=60,
    )
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the size of a head, as loaded and once it is saved again."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.save_pretrained(f"{folder}/again")
    again = transformers.AutoConfig.from_pretrained(f"{folder}/again")
    return [config.text_config.head_dim, again.text_config.head_dim]

"""The text model of Qwen3.5 names its own config."""

import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "made": "5.4.0",
    "symptom": "Qwen3_5TextModel.from_pretrained gives its model the config of the whole model, and saves it so",
    "area": "loading and saving",
    "says": (r"Qwen3_5TextModel", r"Qwen3_5TextConfig", r"Qwen3_5Config"),
    "source": ("Qwen3_5TextModel", "modeling_qwen3_5.py"),
}


def make(folder: str) -> None:
    """Write a tiny text model of Qwen3.5 with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Qwen3_5TextConfig(
        **TEXT,
        layer_types=["linear_attention", "full_attention"],
        head_dim=16,
        max_position_embeddings=64,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [1, 1, 0],
            "mrope_interleaved": True,
            "partial_rotary_factor": 0.25,
        },
        **IDS,
    )
    transformers.Qwen3_5TextModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the config of the model that its own class loads, or the exception."""
    try:
        model = transformers.Qwen3_5TextModel.from_pretrained(folder)
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}"[:80]
    return type(model.config).__name__

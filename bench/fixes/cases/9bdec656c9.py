"""Qwen2-VL's config has the values of its text model in text_config alone."""

import qwen2_vl
import transformers

CASE = {
    "packages": ("torchvision",),
    "symptom": "config.hidden_size of Qwen2-VL raises AttributeError, as its config no longer hands names to text_config",
    "says": (
        r"config.*\b(hidden_size|vocab_size|num_hidden_layers|num_attention_heads)\b",
        r"no attribute '(hidden_size|vocab_size|num_hidden_layers|num_attention_heads)'",
    ),
    "source": ("Qwen2VLConfig", "configuration_qwen2_vl.py"),
}
make = qwen2_vl.make


def observe(folder: str) -> object:
    """Return what the config says of the sizes of its text model."""
    config = transformers.AutoConfig.from_pretrained(folder)
    names = ("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads")
    return {name: getattr(config, name, "AttributeError") for name in names}

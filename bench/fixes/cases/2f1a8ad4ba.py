"""A dict of attention implementations can be given when a model is loaded."""

from llava import make  # noqa: F401  a part of the case
from transformers import AutoConfig

CASE = {
    "symptom": "a config with attn_implementation={...} raises AttributeError",
    "failure": "_attn_implementation_internal",
    "says": ("_attn_implementation",),
    "source": ("_attn_implementation", "configuration_utils.py"),
}


def observe(folder: str) -> object:
    """Return what a user sees."""
    wanted = {"": "sdpa", "text_config": "eager"}
    config = AutoConfig.from_pretrained(folder, attn_implementation=wanted)
    return {"text": config.text_config._attn_implementation}

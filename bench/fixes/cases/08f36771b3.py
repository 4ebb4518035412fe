"""A model loads without accelerate."""

import torch
import transformers
from sizes import PLAIN_TEXT

CASE = {
    "before": "4.51.0",
    "after": "4.51.1",
    "symptom": "from_pretrained raises NameError for every model where accelerate is not installed",
    "failure": "init_empty_weights",
    "says": (r"init_empty_weights",),
    "source": ("get_init_context", "init_empty_weights", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny GPT-NeoX."""
    config = transformers.GPTNeoXConfig(**PLAIN_TEXT, max_position_embeddings=64)
    transformers.GPTNeoXForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return list(model(torch.arange(3, 9)[None]).logits.shape)

"""A model loads without accelerate.

https://github.com/huggingface/transformers/pull/37337
"""

import json
import sys

import torch
import transformers

CASE = {
    "before": "4.51.0",
    "after": "4.51.1",
    "made": "4.51.0",
    "symptom": "from_pretrained raises NameError for every model where accelerate is not installed",
    "area": "loading and saving",
    "failure": "init_empty_weights",
    "says": (r"init_empty_weights",),
    "source": ("get_init_context", "init_empty_weights", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny GPT-NeoX."""
    torch.manual_seed(0)
    config = transformers.GPTNeoXConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    transformers.GPTNeoXForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a text."""
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    except NameError as error:
        return f"NameError: {error}"
    with torch.no_grad():
        return list(model(torch.arange(3, 9)[None]).logits.shape)


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))

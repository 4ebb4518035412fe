"""A T5 of bfloat16 stays bfloat16 when it is loaded."""

import torch
import transformers
from sizes import T5

CASE = {
    "made": "5.1.0",
    "symptom": "the wo layers of a T5 of bfloat16 are loaded as float32: other memory, speed and numbers",
    "area": "loading and saving",
    "signals": ("logits", "hidden_states", "weights", "greedy"),
    "says": (r"wo\.weight.*(float32|bfloat16)", r"dtype.*wo\.weight"),
    "source": (
        "_get_dtype_plan",
        "dtype_plan",
        "modeling_utils.py",
        "core_model_loading.py",
        "_keep_in_fp32_modules",
    ),
}


def make(folder: str) -> None:
    """Write a tiny T5 in bfloat16."""
    config = transformers.T5Config(vocab_size=128, **T5, num_layers=2, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    model.to(torch.bfloat16).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many parameters have each dtype after a load in bfloat16."""
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16)
    dtypes = sorted(str(parameter.dtype) for parameter in model.parameters())
    return {name: dtypes.count(name) for name in dict.fromkeys(dtypes)}

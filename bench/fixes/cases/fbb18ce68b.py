"""A model that is loaded by the name of a dtype has the dtype in its config."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "config.torch_dtype of a model that is loaded with the name of a dtype is that name: it equals no torch.dtype",
    "says": (
        r"config\.(torch_)?dtype",
        r"torch_dtype.*(float16|float32|\bstr\b)",
        r"(float16|float32).*torch_dtype",
    ),
    "source": ("_get_torch_dtype", "torch_dtype", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama in float32 with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(**TEXT, max_position_embeddings=64, **IDS)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the dtypes of a model and of its config, for each way of asking for bfloat16."""
    seen = {}
    for name, value in {"dtype": torch.bfloat16, "name": "bfloat16", "none": None}.items():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=value)
        seen[name] = [str(model.dtype), str(model.config.torch_dtype)]
    return seen

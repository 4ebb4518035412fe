"""The dtype of a checkpoint that begins with float8 is that of its other tensors."""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from saved import edit
from sizes import GROUPED

CASE = {
    "symptom": "a checkpoint whose first tensor is float8, and whose config has no dtype, does not load",
    "findings": ("SB306",),
    "failure": "Float8_e4m3fn",
    "says": (r"[Ff]loat8",),
    "source": ("get_state_dict_dtype", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama of bfloat16 whose head is float8, with no dtype in its config."""
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    weights = load_file(Path(folder, "model.safetensors"))
    weights["lm_head.weight"] = weights["lm_head.weight"].to(torch.float8_e4m3fn)
    save_file(weights, Path(folder, "model.safetensors"), metadata={"format": "pt"})
    edit(folder, drop=["dtype"])


def observe(folder: str) -> object:
    """Return the dtype of the embeddings that load, or the exception."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    return str(model.get_input_embeddings().weight.dtype)

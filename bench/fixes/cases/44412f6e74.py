"""A checkpoint with a name and a number at one place of its keys loads."""

import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from sizes import TEXT

CASE = {
    "symptom": "a checkpoint with model.layers.0 and model.layers.scale raises TypeError",
    "failure": "'<' not supported between instances of",
    "says": (r"not supported between instances of",),
    "source": ("dot_natural_key", "core_model_loading.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with a further tensor beside its layers."""
    config = transformers.LlamaConfig(**TEXT)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    path = pathlib.Path(folder, "model.safetensors")
    tensors = load_file(path)
    tensors["model.layers.scale"] = torch.ones(4)
    save_file(tensors, path, {"format": "pt"})


def observe(folder: str) -> object:
    """Return the shape of the logits of a text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return list(model(torch.arange(3, 9)[None]).logits.shape)

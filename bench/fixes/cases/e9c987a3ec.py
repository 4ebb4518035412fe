"""A model that lies on disk as a whole is saved."""

import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from sizes import GROUPED

CASE = {
    "packages": ("accelerate",),
    "symptom": "save_pretrained of a model with device_map={'': 'disk'} writes no values, or raises for meta tensors",
    "findings": ("SB317",),
    "failure": "Cannot copy out of meta tensor",
    "says": (r"device_map.*disk", r"offload"),
    "source": ("save_pretrained", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama."""
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a model that is loaded onto disk is saved with its weights."""
    with tempfile.TemporaryDirectory() as offload, tempfile.TemporaryDirectory() as saved:
        model = transformers.LlamaForCausalLM.from_pretrained(
            folder, device_map={"": "disk"}, offload_folder=offload
        )
        try:
            model.save_pretrained(saved)
        except Exception as error:  # noqa: BLE001  # of torch or of safetensors
            return f"{type(error).__name__}: {error}"[:100]
        wanted = load_file(Path(folder, "model.safetensors"))
        written = load_file(Path(saved, "model.safetensors"))
    equal = wanted.keys() == written.keys() and all(
        torch.equal(wanted[name], written[name]) for name in wanted
    )
    return {"weights are saved": equal}

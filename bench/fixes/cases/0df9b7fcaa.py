"""Gemma 4 takes either ids or what its layers get of each id."""

import torch
import transformers
from sizes import GEMMA4_TEXT

CASE = {
    "symptom": "Gemma 4 takes per_layer_inputs beside input_ids without a word, although they can contradict them",
    "failure": "cannot specify per_layer_inputs",
    "says": (r"per_layer_inputs",),
    "source": ("Gemma4TextModel", "modeling_gemma4.py", "per_layer_inputs"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 4 of text alone."""
    config = transformers.Gemma4TextConfig(**GEMMA4_TEXT)
    transformers.Gemma4ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of ids with inputs of the layers, or the exception."""
    model = transformers.Gemma4ForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([[5, 6, 7]]), per_layer_inputs=torch.zeros(1, 3, 2, 16)
        ).logits
    return list(logits.shape)

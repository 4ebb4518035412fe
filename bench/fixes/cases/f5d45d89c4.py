"""An attention without weights no longer drops output_attentions of the config in silence."""

import torch
from sizes import TEXT
from transformers import AutoConfig, AutoModelForCausalLM, GemmaConfig, GemmaForCausalLM

CASE = {
    "symptom": "config.output_attentions = True is refused while attention is sdpa, it fell back to eager before",
    "signals": ("attentions",),
    "failure": "output_attentions",
    "says": ("output_attentions", "\\battentions\\b"),
    "source": (
        "output_attentions",
        "configuration_utils.py",
        "GemmaAttention",
        "modeling_gemma.py",
    ),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = GemmaConfig(**TEXT, head_dim=8, output_attentions=True)
    GemmaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    ids = torch.arange(3, 12)[None]
    model = AutoModelForCausalLM.from_pretrained(folder)
    attentions = model(ids).attentions
    config = AutoConfig.from_pretrained(folder)
    config.output_attentions = False
    model = AutoModelForCausalLM.from_pretrained(folder, config=config)
    try:
        model.config.output_attentions = True
        switched = "accepted"
    except ValueError as error:
        switched = f"ValueError: {str(error).splitlines()[0][:60]}"
    weights = None if attentions is None else sum(layer is not None for layer in attentions)
    return {"layers with attention weights": weights, "switch on later": switched}

"""A forward of Gemma 3n in training mode does not overwrite its correction coefficients."""

import gemma
import torch
import transformers

CASE = {
    "symptom": "a training forward of Gemma 3n clips correction_coefs in place; export calls it mutated",
    "signals": ("weights", "gradients"),
    "findings": ("SB842",),
    "says": (r"correction_coefs", r"is mutated in the forward"),
    "source": ("Gemma3nTextAltUp", "correct", "modeling_gemma3n.py"),
}
CLIP = 0.2


def make(folder: str) -> None:
    """Write a tiny Gemma 3n for text, some of whose coefficients are to be clipped."""
    gemma.make(folder, altup_coef_clip=CLIP)


def observe(folder: str) -> object:
    """Return whether a training forward leaves the coefficients of the checkpoint as they are."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).train()
    coefficients = {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if "correction_coefs" in name
    }
    ids = torch.tensor([[2, 5, 6, 7, 8, 9]])
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    weights = dict(model.named_parameters())
    return {
        "clipped in place": [
            name for name, old in coefficients.items() if not torch.equal(weights[name], old)
        ],
        "coefficients without a gradient": sum(
            int((weights[name].grad == 0).sum()) for name in coefficients
        ),
    }

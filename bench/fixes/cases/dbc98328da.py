"""Gemma 3n gives numbers for a token whose embedding is zero."""

import gemma
import torch
import transformers

CASE = {
    "before": "4.53.0",
    "after": "4.53.1",
    "symptom": "Gemma 3n gives NaN for a text with padding, as its embedding of zeros is divided by its own magnitude",
    "signals": ("logits", "hidden_states", "outputs", "batch", "padding", "decode", "greedy"),
    "says": (r"(?i)\bnan\b", r"not finite"),
    "source": ("Gemma3nTextModel", "modeling_gemma3n.py", "epsilon_tensor"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 3n for text."""
    gemma.make(folder, activation_sparsity_pattern=[0.0] * 4)


def observe(folder: str) -> object:
    """Return how many logits of two texts are finite, of which one is padded."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[2, 5, 6, 7, 8, 9], [0, 0, 0, 2, 5, 6]])
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
    return [int(torch.isfinite(row).sum()) for row in logits]

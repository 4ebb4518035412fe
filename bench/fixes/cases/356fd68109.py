"""Beam search ends for each prompt of a batch, whatever the others do."""

import torch
import transformers
from sizes import IDS, TEXT

CASE = {
    "symptom": "beam search gives a prompt other tokens in a batch, as it goes on for as long as another one does",
    "says": (r"[Bb]eam",),
    "findings": ("SB932",),
    "source": ("_check_early_stop_heuristic", "_beam_search"),
}


def make(folder: str) -> None:
    """Write a tiny Llama that often ends."""
    config = transformers.LlamaConfig(**TEXT, **IDS | {"eos_token_id": [2, *range(40, 50)]})
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many of twenty pairs of prompts get other tokens than each prompt alone."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    options = {"num_beams": 3, "max_new_tokens": 24, "do_sample": False, "early_stopping": False}
    changed = 0
    for first in range(20):
        pair = torch.arange(3, 15).reshape(2, 6) + first
        together = model.generate(pair, **options)
        for row, prompt in zip(together, pair, strict=True):
            alone = model.generate(prompt[None], **options)[0]
            changed += row[: len(alone)].tolist() != alone.tolist()
    return changed

"""CPM-Ant's head has the size of the vocabulary, as that of the published checkpoint."""

import torch
import transformers

CASE = {
    "made": "5.16.0",
    "symptom": "loading CPM-Ant raises: lm_head.weight is made larger than the vocabulary, the size of the prompts too much",
    "area": "loading and saving",
    "signals": ("weights", "load", "logits", "greedy"),
    "failure": "ignore_mismatched_sizes",
    "says": (r"lm_head\.weight", r"size mismatch"),
    "source": ("CpmAntForCausalLM", "modeling_cpmant.py"),
}


def make(folder: str) -> None:
    """Write a tiny CPM-Ant whose head has the size of the vocabulary."""
    config = transformers.CpmAntConfig(
        vocab_size=64,
        hidden_size=32,
        num_attention_heads=4,
        dim_head=8,
        dim_ff=48,
        num_hidden_layers=2,
        position_bias_num_buckets=32,
        position_bias_max_distance=128,
        prompt_types=4,
        prompt_length=4,
        segment_types=4,
        init_std=0.3,
    )
    transformers.CpmAntForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return list(model(torch.arange(7, 16)[None]).logits.shape)

"""Gemma 3n gives numbers for a token whose embedding is zero."""

import torch
import transformers
from sizes import GEMMA_IDS
from tokens import tokenizer_of

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
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "the", "is"]
    tokenizer_of(
        words, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = transformers.Gemma3nTextConfig(
        vocab_size=64,
        vocab_size_per_layer_input=64,
        hidden_size=32,
        hidden_size_per_layer_input=16,
        intermediate_size=48,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=16,
        laurel_rank=8,
        altup_num_inputs=2,
        activation_sparsity_pattern=[0.0] * 4,
        initializer_range=0.3,
        **GEMMA_IDS,
    )
    transformers.Gemma3nForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many logits of two texts are finite, of which one is padded."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[2, 5, 6, 7, 8, 9], [0, 0, 0, 2, 5, 6]])
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
    return [int(torch.isfinite(row).sum()) for row in logits]

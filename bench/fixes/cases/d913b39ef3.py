"""A Gemma 3n without layer_types in its config has a full attention in each fifth layer, not in the first."""

import torch
import transformers
from saved import edit

CASE = {
    "made": "4.54.0",
    "symptom": "Gemma 3n without layer_types has its full attention in the wrong layers",
    "area": "loading and saving",
    "signals": ("logits", "hidden_states"),
    "says": (r"layer_types.*(sliding|full)_attention",),
    "source": ("Gemma3nTextConfig", "configuration_gemma3n.py"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 3n for text whose config names no layer_types."""
    config = transformers.Gemma3nTextConfig(
        vocab_size=128,
        vocab_size_per_layer_input=128,
        hidden_size=32,
        hidden_size_per_layer_input=16,
        intermediate_size=48,
        num_hidden_layers=5,
        num_kv_shared_layers=0,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        altup_num_inputs=2,
        laurel_rank=8,
        sliding_window=4,
        activation_sparsity_pattern=[0.0] * 5,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    transformers.Gemma3nForCausalLM(config).save_pretrained(folder)
    edit(folder, drop=["layer_types"])


def observe(folder: str) -> object:
    """Return the layers with full attention, and whether the second layer sees a far token."""
    model = transformers.Gemma3nForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(3, 19)[None]
    other = ids.clone()
    other[0, 0] = 99
    with torch.no_grad():
        states = [model(row, output_hidden_states=True).hidden_states for row in (ids, other)]
    last = [state[1][..., -1, :] for state in states]
    return {
        "full": [n for n, kind in enumerate(model.config.layer_types) if kind == "full_attention"],
        "first layer sees a far token": not torch.equal(*last),
    }

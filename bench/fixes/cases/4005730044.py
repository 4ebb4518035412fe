"""The groups of Mamba-2 reach the heads in their order."""

import torch
import transformers
from sizes import IDS

CASE = {
    "symptom": "Mamba-2 with several groups computes other logits from a prompt than step by step",
    "signals": ("logits", "hidden_states", "decode", "greedy"),
    "findings": ("SB704",),
    "source": ("Mamba2Mixer", "torch_forward", "modeling_mamba2.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mamba-2 with two groups."""
    config = transformers.Mamba2Config(
        vocab_size=128,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=8,
        n_groups=2,
        expand=2,
        conv_kernel=4,
        chunk_size=8,
        initializer_range=0.3,
        **IDS,
    )
    model = transformers.Mamba2ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if "in_proj" in name or "conv1d" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how far the last logits of a prompt are from those of a decoding by single tokens."""
    model = transformers.Mamba2ForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        prompt = model(ids, use_cache=False).logits[0, -1]
        output = model(ids[:, :1], use_cache=True, cache_position=torch.arange(4))
        for i in range(1, ids.shape[1]):
            output = model(
                ids[:, i : i + 1],
                use_cache=True,
                cache_params=output.cache_params,
                cache_position=torch.tensor([i]),
            )
    return {"distance": round(float((prompt - output.logits[0, -1]).abs().max()), 3)}

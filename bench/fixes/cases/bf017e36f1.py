"""The cache of latent attention holds latents."""

import torch
import transformers
from sizes import DEEPSEEK, IDS, SMALL

CASE = {
    "symptom": "a DeepSeek-V3's cache holds keys and values of each head, several times as many numbers as its latents",
    "signals": ("cache", "past_key_values"),
    "says": (r"\bcache\b", r"past_key_values"),
    "source": ("DeepseekV3Attention", "modeling_deepseek_v3.py", "expand_kv"),
}


def make(folder: str) -> None:
    """Write a tiny DeepSeek-V3."""
    config = transformers.DeepseekV3Config(
        **SMALL,
        **DEEPSEEK,
        **IDS,
        vocab_size=64,
        num_key_value_heads=4,
        n_group=2,
        topk_group=1,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    transformers.DeepseekV3ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shapes of the first layer of a cache."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        layer = model(torch.arange(3, 9)[None], use_cache=True).past_key_values.layers[0]
    return [[*layer.keys.shape], [*layer.values.shape]]

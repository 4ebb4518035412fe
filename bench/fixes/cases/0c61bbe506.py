"""Inkling takes a prompt with a static cache that is longer than the prompt."""

import torch
import transformers
from sizes import IDS, TEXT_128

CASE = {
    "before": "5.14.0",
    "after": "5.14.1",
    "symptom": "generate() of Inkling with a static cache raises RuntimeError at the first forward",
    "area": "generation",
    "findings": ("SB824", "SB916", "SB932", "SB931"),
    "failure": "must match the size",
    "says": (r"position_bias", r"must match the size"),
    "source": ("sdpa_attention_forward", "create_position_bias_mask", "sdpa_attention.py"),
}


def make(folder: str) -> None:
    """Write a tiny Inkling for text."""
    config = transformers.InklingTextConfig(
        **TEXT_128,
        head_dim=8,
        swa_num_attention_heads=4,
        swa_num_key_value_heads=2,
        swa_head_dim=8,
        sliding_window_size=32,
        d_rel=4,
        rel_extent=16,
        layer_types=["hybrid_sliding", "hybrid"],
        mlp_layer_types=["dense", "dense"],
        max_position_embeddings=64,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        logits_mup_width_multiplier=1.0,
        **IDS,
    )
    transformers.InklingForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of new tokens of generate() with each cache."""
    model = transformers.InklingForCausalLM.from_pretrained(folder).eval()
    return {cache: new_tokens(model, cache) for cache in ("dynamic", "static")}


def new_tokens(model: transformers.PreTrainedModel, cache: str) -> object:
    """Return how many tokens are new, or the exception."""
    ids = torch.arange(3, 9)[None]
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    try:
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), cache_implementation=cache, **options
        )
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return output.shape[1] - ids.shape[1]

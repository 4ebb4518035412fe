"""A model with linear attention generates with a static cache."""

import torch
import transformers
from sizes import IDS, TEXT

CASE = {
    "symptom": "generate(cache_implementation='static') of Qwen3-Next raises KeyError: 'linear_attention'",
    "area": "generation",
    "failure": "linear_attention",
    "findings": ("SB916",),
    "says": (r"linear_attention", r"max_batch_size"),
    "source": ("create_masks_for_generate", "masking_utils.py", "cache_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen3-Next."""
    config = transformers.Qwen3NextConfig(
        **TEXT,
        head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        max_position_embeddings=64,
        **IDS,
    )
    transformers.Qwen3NextForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens two calls give, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    lengths = []
    for _ in range(2):
        try:
            tokens = model.generate(
                torch.arange(3, 9)[None],
                attention_mask=torch.ones(1, 6, dtype=torch.long),
                cache_implementation="static",
                max_new_tokens=3,
                min_new_tokens=3,
                do_sample=False,
                disable_compile=True,
            )
            lengths.append(tokens.shape[1])
        except (KeyError, AttributeError, RuntimeError) as error:
            lengths.append(f"{type(error).__name__}: {error}"[:80])
    return lengths

"""The indexer of GLM-MoE-DSA counts no score below zero."""

import torch
import transformers
from sizes import DEEPSEEK, GROUPED, IDS, PLAIN_TEXT

CASE = {
    "symptom": "GLM-MoE-DSA attends to other tokens than the original once a text is longer than index_topk",
    "signals": ("hidden_states", "logits", "decode", "greedy"),
    "source": ("GlmMoeDsaIndexer", "modeling_glm_moe_dsa.py"),
}


def make(folder: str) -> None:
    """Write a tiny GLM-MoE-DSA that attends to four tokens."""
    config = transformers.GlmMoeDsaConfig(
        **GROUPED | PLAIN_TEXT | DEEPSEEK | {"num_key_value_heads": 4},
        index_head_dim=16,
        index_n_heads=2,
        index_topk=4,
        n_group=1,
        topk_group=1,
        max_position_embeddings=64,
        **IDS,
    )
    transformers.GlmMoeDsaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sum of the logits of a text of 20 tokens."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.arange(3, 23)[None]).logits
    return round(logits.double().abs().sum().item(), 2)

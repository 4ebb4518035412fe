"""A Qwen3-MoE makes the attention and the MLP of a layer once."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "a seed gives a new Qwen3-MoE other first weights, as each layer drew parts that it threw away",
    "says": (r"(?i)first weights", r"(?i)\bseed\b.*weights", r"(?i)from_config.*weights"),
    "source": ("Qwen3MoeDecoderLayer", "modeling_qwen3_moe.py"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen3-MoE with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Qwen3MoeConfig(
        **TEXT,
        head_dim=8,
        moe_intermediate_size=16,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        **IDS,
    )
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return a sum of the head of a model that is made of the config with a seed."""
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    return round(model.lm_head.weight.double().sum().item(), 3)

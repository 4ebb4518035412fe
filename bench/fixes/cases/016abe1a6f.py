"""The cache of Nemotron-H has a layer for each of its "mlp" layers."""

import torch
import transformers
from sizes import IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "every forward of a Nemotron-H with an mlp layer raises KeyError: 'mlp' when it makes its cache",
    "failure": "'mlp'",
    "says": (r"KeyError.*'?mlp'?",),
    "source": ("LAYER_TYPE", "DynamicCache", "cache_utils.py", "NemotronH"),
}


def make(folder: str) -> None:
    """Write a tiny Nemotron-H of four kinds of layers, with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.NemotronHConfig(
        vocab_size=64,
        hidden_size=32,
        layer_types=["linear_attention", "mlp", "full_attention", "mlp"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=64,
        ssm_state_size=8,
        mamba_num_heads=4,
        mamba_head_dim=8,
        n_groups=2,
        chunk_size=8,
        use_mamba_kernels=False,
        initializer_range=0.3,
        **IDS,
    )
    transformers.NemotronHForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what greedy generation gives, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[1, 5, 6, 7, 8, 9]])
    return list(model.generate(ids, max_new_tokens=3, do_sample=False).shape)

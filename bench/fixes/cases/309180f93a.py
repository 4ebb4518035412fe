"""BLT keeps the keys of its encoder and of its decoder apart."""

import torch
import transformers
from sizes import IDS

CASE = {
    "symptom": "BLT generates other bytes with a cache: its encoder has none, and cross attention writes over keys of the decoder",
    "signals": ("logits", "decode", "greedy", "outputs", "hidden_states"),
    "says": (r"BltModel", r"BltCrossAttention", r"modeling_blt\.py"),
    "source": ("BltModel", "BltCrossAttention", "BltLocalDecoder", "modeling_blt.py"),
}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
}


def make(folder: str) -> None:
    """Write a tiny BLT with patches of one byte."""
    config = transformers.BltConfig(
        vocab_size=64,
        max_position_embeddings=64,
        patch_in_forward=False,
        patch_size=4,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_size=32,
        cross_attn_k=2,
        encoder_hash_byte_group_size=[3],
        encoder_hash_byte_group_vocab=50,
        encoder_hash_byte_group_nb_functions=1,
        patcher_config=SIZES | {"vocab_size": 64, "num_hidden_layers": 1},
        encoder_config=SIZES | {"vocab_size": 64, "num_hidden_layers": 1, "hidden_size_global": 64},
        decoder_config=SIZES | {"vocab_size": 64, "num_hidden_layers": 2, "hidden_size_global": 64},
        global_config=SIZES | {"hidden_size": 64, "num_hidden_layers": 2},
        initializer_range=0.3,
        **IDS,
    )
    transformers.BltForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the bytes that follow a text, without a cache and with one."""
    model = transformers.BltForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(5, 14)[None]
    made = {}
    for use_cache in (False, True):
        tokens = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            use_cache=use_cache,
            max_new_tokens=8,
            min_new_tokens=8,
            do_sample=False,
        )
        made[f"use_cache={use_cache}"] = tokens[0, ids.shape[1] :].tolist()
    return made

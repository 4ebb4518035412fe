"""A tiny Gemma 3n for text, which several cases share."""

from __future__ import annotations

import transformers
from sizes import GEMMA_IDS  # type: ignore[import-not-found]  # beside this file
from tokens import tokenizer_of  # type: ignore[import-not-found]


def make(folder: str, **changed: object) -> None:
    """Write it with these fields of its config beside its own."""
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
        initializer_range=0.3,
        **GEMMA_IDS,
        **changed,
    )
    transformers.Gemma3nForCausalLM(config).save_pretrained(folder)

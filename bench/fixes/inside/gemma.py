"""A tiny Gemma 3n or 4 for text, which several cases share."""

from __future__ import annotations

import transformers
from sizes import GEMMA_IDS, GROUPED  # type: ignore[import-not-found]  # beside this file
from tokens import MARKS, tokenizer_of  # type: ignore[import-not-found]


def make(folder: str, kind: str = "Gemma3n", **changed: object) -> None:
    """Write it with these fields of its config beside its own."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "the", "is"]
    tokenizer_of(words, **MARKS).save_pretrained(folder)
    fields = {
        "vocab_size": 64,
        "vocab_size_per_layer_input": 64,
        **GROUPED,
        "hidden_size_per_layer_input": 16,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "head_dim": 8,
        "sliding_window": 16,
        "initializer_range": 0.3,
        **GEMMA_IDS,
    }
    fields |= {"laurel_rank": 8, "altup_num_inputs": 2} if kind == "Gemma3n" else {}
    config = getattr(transformers, f"{kind}TextConfig")(**(fields | changed))
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)

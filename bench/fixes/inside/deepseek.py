"""A tiny DeepSeek with a byte-level tokenizer.json, and the class that the hub names for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from sizes import DEEPSEEK  # type: ignore[import-not-found]

LINES = [
    "the quick brown fox jumps over the lazy dog",
    "numbers 0 1 2 3 4 5 6 7 8 9 are here",
    "def add(a, b):\n    return a + b\n",
    "studies have shown that owning a dog is good",
]


def tokenizer(folder: str) -> None:
    """Write the tokenizer."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<begin>", "<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    backend.save(f"{folder}/tokenizer.json")
    words = {
        "tokenizer_class": "LlamaTokenizerFast",
        "bos_token": "<begin>",
        "eos_token": "<end>",
        "pad_token": "<end>",
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    Path(folder, "tokenizer_config.json").write_text(json.dumps(words), "utf-8")


def make(folder: str, config_class: Any, model_class: Any) -> None:
    """Write a model of these classes with the tokenizer."""
    tokenizer(folder)
    config = config_class(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=48,
        **DEEPSEEK,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_group=2,
        topk_group=1,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,
    )
    model_class(config).save_pretrained(folder)

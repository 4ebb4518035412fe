"""The cache of continuous batching is made: it sets its own lists of keys and values."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of
from transformers.generation.continuous_batching import PagedAttentionCache

CASE = {
    "before": "4.54.0",
    "after": "4.54.1",
    "symptom": "generate_batch() gives nothing: its cache raises AttributeError, property 'key_cache' has no setter",
    "failure": "'key_cache'",
    "says": (
        r"PagedAttentionCache",
        r"generate_batch",
        r"continuous batching",
        r"property 'key_cache'",
    ),
    "source": ("PagedAttentionCache", "continuous_batching.py", "generate_batch"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(**TEXT, max_position_embeddings=64, **IDS)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of layers of a cache for continuous batching, or the exception."""
    config = transformers.AutoConfig.from_pretrained(folder)
    settings = transformers.GenerationConfig(num_blocks=8, block_size=16, max_batch_tokens=32)
    cache = PagedAttentionCache(config, settings, torch.device("cpu"), torch.float32)
    return len(cache.key_cache)

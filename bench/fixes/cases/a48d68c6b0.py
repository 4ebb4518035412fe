"""A model in training mode makes a cache, as one in evaluation does."""

import torch
import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "a Cohere2 in training mode gives no cache, whatever use_cache says",
    "says": (r"(?i)train\w*.*(past_key_values|cache)", r"(?i)(past_key_values|cache).*train"),
    "source": ("Cohere2Model", "modeling_cohere2.py"),
}


def make(folder: str) -> None:
    """Write a tiny Cohere2 with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Cohere2Config(
        **TEXT,
        max_position_embeddings=64,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
        **IDS,
    )
    transformers.Cohere2ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the length of the cache of a text in each mode."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    seen = {}
    for training in (False, True):
        with torch.no_grad():
            cache = model.train(training)(torch.arange(3, 9)[None], use_cache=True).past_key_values
        seen[str(training)] = None if cache is None else cache.get_seq_length()
    return seen

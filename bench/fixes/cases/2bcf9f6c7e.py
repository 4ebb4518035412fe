"""A cache of an encoder and a decoder is made of tensors, as DataParallel gathers it."""

import torch
import transformers
from sizes import BART, IDS

CASE = {
    "symptom": "EncoderDecoderCache of an iterable of tensors raises TypeError, so that nn.DataParallel cannot gather one",
    "failure": "cross_attention_cache",
    "says": (r"EncoderDecoderCache",),
    "source": ("EncoderDecoderCache", "cache_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny BART."""
    config = transformers.BartConfig(
        **BART,
        **IDS,
        vocab_size=64,
        encoder_layers=1,
        decoder_layers=1,
        max_position_embeddings=64,
        decoder_start_token_id=2,
        init_std=0.3,
    )
    transformers.BartForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many tokens a cache that is made of the tensors of another one has, or the exception."""
    model = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        cache = model(ids, decoder_input_ids=ids).past_key_values
    tensors = cache if isinstance(cache, tuple) else cache.to_legacy_cache()
    again = transformers.EncoderDecoderCache(tensors)
    return again.get_seq_length()

"""Dia's decoder keeps the ids of its special tokens when a config is saved and loaded."""

import transformers
from sizes import GROUPED

CASE = {
    "symptom": "a loaded Dia has 1024, 1025 and 1026 for its special tokens, whatever its config.json says",
    "signals": ("config", "greedy"),
    "says": (
        r"decoder_config\.?(pad|bos|eos)_token_id",
        r"\b102[456]\b.*_token_id",
        r"_token_id.*\b102[456]\b",
    ),
    "source": ("DiaConfig", "DiaDecoderConfig", "configuration_dia.py", "decoder_config"),
}
SIZES = {**GROUPED, "head_dim": 8, "max_position_embeddings": 64}


def make(folder: str) -> None:
    """Write a tiny Dia with special tokens inside its small vocabulary."""
    config = transformers.DiaConfig(
        encoder_config=SIZES | {"vocab_size": 32},
        decoder_config=SIZES
        | {
            "vocab_size": 64,
            "num_channels": 3,
            "cross_head_dim": 8,
            "cross_num_attention_heads": 4,
            "cross_num_key_value_heads": 4,
            "cross_hidden_size": 32,
        },
        delay_pattern=[0, 1, 2],
        pad_token_id=61,
        eos_token_id=60,
        bos_token_id=62,
        initializer_range=0.3,
    )
    transformers.DiaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the special tokens of a loaded decoder's config."""
    model = transformers.DiaForConditionalGeneration.from_pretrained(folder)
    decoder = model.config.decoder_config
    return [decoder.pad_token_id, decoder.eos_token_id, decoder.bos_token_id]

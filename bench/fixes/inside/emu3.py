"""A tiny Emu3, which several cases share."""

from __future__ import annotations

import transformers
from sizes import GROUPED, IDS  # type: ignore[import-not-found]  # beside this file

IMAGE = 3


def make(folder: str) -> None:
    """Write it; 20 tokens stand for codes of images."""
    names = {number: f"word{number}" for number in range(100)}
    names |= {number: f"<|visual token {number - 10:06d}|>" for number in range(10, 30)}
    names |= {IMAGE: "<image>", 4: "<|extra_200|>"}
    text = {
        "vocab_size": 100,
        **GROUPED,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        **IDS,
    }
    vq = {
        "codebook_size": 20,
        "embed_dim": 4,
        "temporal_downsample_factor": 1,
        "base_channels": 32,
        "channel_multiplier": [1, 2, 1],
        "num_res_blocks": 1,
        "hidden_size": 32,
        "attn_resolutions": [],
    }
    config = transformers.Emu3Config(
        text_config=text,
        vq_config=vq,
        vocabulary_map={name: number for number, name in names.items()},
    )
    transformers.Emu3ForConditionalGeneration(config).save_pretrained(folder)

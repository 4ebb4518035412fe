"""Qwen2-Audio takes cache_position."""

import torch
import transformers
from sizes import QWEN_AUDIO, TEXT_128

CASE = {
    "symptom": "a forward of Qwen2-Audio with cache_position raises TypeError",
    "findings": ("SB927",),
    "failure": "unexpected keyword argument 'cache_position'",
    "says": (r"Qwen2AudioForConditionalGeneration.*cache_position",),
    "source": ("Qwen2AudioForConditionalGeneration", "modeling_qwen2_audio.py"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2-Audio."""
    text = {"model_type": "qwen2", **TEXT_128}
    audio = {**QWEN_AUDIO, "max_source_positions": 20}
    config = transformers.Qwen2AudioConfig(
        text_config=text, audio_config=audio, audio_token_index=120
    )
    transformers.Qwen2AudioForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a text whose positions in the cache are given."""
    model = transformers.Qwen2AudioForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        output = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            cache_position=torch.arange(6),
        )
    return list(output.logits.shape)

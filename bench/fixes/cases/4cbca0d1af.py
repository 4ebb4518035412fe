"""Voxtral merges the embeddings of text and audio without writing into those of the text."""

import torch
import transformers
from sizes import TEXT

CASE = {
    "symptom": "Voxtral with frozen weights and enable_input_require_grads, as adapters need it, raises on audio",
    "signals": ("gradients",),
    "failure": "a leaf Variable that requires grad",
    "says": (r"a leaf Variable that requires grad",),
    "source": ("VoxtralForConditionalGeneration", "modeling_voxtral.py"),
}
AUDIO = 5
MELS, FRAMES = 16, 80


def make(folder: str) -> None:
    """Write a tiny Voxtral."""
    config = transformers.VoxtralConfig(
        audio_config={
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_mel_bins": MELS,
            "max_source_positions": FRAMES // 2,
        },
        text_config={**TEXT, "head_dim": 8, "max_position_embeddings": 64},
        audio_token_id=AUDIO,
    )
    transformers.VoxtralForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of a model whose weights are frozen, or the exception."""
    model = transformers.VoxtralForConditionalGeneration.from_pretrained(folder)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.enable_input_require_grads()
    ids = torch.tensor([[1, 7, *[AUDIO] * 10, 8, 9, 10, 11]])
    torch.manual_seed(0)
    inputs = {"input_ids": ids, "input_features": torch.randn(1, MELS, FRAMES)}
    loss = model(**inputs, labels=ids).loss
    loss.backward()
    return round(loss.item(), 2)

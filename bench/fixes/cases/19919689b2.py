"""Gemma 3 rounds the scale of its embeddings to their type."""

import torch
import transformers
from sizes import GROUPED, IDS

CASE = {
    "packages": ("accelerate",),
    "symptom": "Gemma 3 in bfloat16 scales its embeddings by 6.9282 in place of 6.9375, with which it was trained",
    "signals": ("hidden_states", "logits", "outputs", "buffers"),
    "says": (r"Gemma3TextScaledWordEmbedding", r"embed_scale"),
    "source": ("Gemma3TextScaledWordEmbedding", "embed_scale", "embed_tokens"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 3 of text alone in bfloat16."""
    config = transformers.Gemma3TextConfig(
        vocab_size=64,
        **(GROUPED | {"hidden_size": 48}),
        head_dim=8,
        sliding_window=16,
        query_pre_attn_scalar=8,
        initializer_range=0.3,
        **IDS,
    )
    transformers.Gemma3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the first scaled embeddings of a token."""
    model = transformers.Gemma3ForCausalLM.from_pretrained(folder, torch_dtype="auto").eval()
    with torch.no_grad():
        states = model.model.embed_tokens(torch.tensor([[5]]))
    return states[0, 0, :12].tolist()

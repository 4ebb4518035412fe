"""The voice of Qwen2.5-Omni rotates its queries and keys in pairs."""

import sys

import qwen2_5_omni
import torch
import transformers

CASE = {
    "symptom": "Qwen2.5-Omni speaks with distortions: the rotary embedding of its vocoder mixes two layouts",
    "signals": ("waveform",),
    "says": (r"DiTAttention", r"Token2WavDiTModel"),
    "source": ("DiTAttention", "Qwen2_5OmniToken2WavDiTModel", "apply_rotary_pos_emb"),
}


ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-Omni with its voice."""
    qwen2_5_omni.make(folder, {"rope_parameters": ROPE}, 16)


def observe(folder: str) -> object:
    """Return whether the scores of the vocoder's attention depend on distances alone."""
    model = transformers.Qwen2_5OmniForConditionalGeneration.from_pretrained(folder).eval()
    transformer = model.token2wav.code2wav_dit_model
    attention = transformer.transformer_blocks[0].attn
    states = torch.zeros(1, 12, 32)
    torch.manual_seed(1)
    # the same vectors at places 0 and 3, and again at 6 and 9
    states[0, [0, 6]], states[0, [3, 9]] = torch.randn(32), torch.randn(32)
    positions = transformer.rotary_embed(states, torch.arange(12)[None])
    given = []
    functions = sys.modules[type(transformer).__module__].ALL_ATTENTION_FUNCTIONS

    def record(_module, query, key, value, **_options):  # noqa: ANN001, ANN003, ANN202
        given.append((query @ key.transpose(-1, -2))[0, 0])
        return value.transpose(1, 2), None

    functions["sdpa"] = record
    attention.config._attn_implementation = "sdpa"
    with torch.no_grad():
        attention(states, position_embeddings=positions)
    scores = given[0]
    return {"scores are equal": bool((scores[0, 3] - scores[6, 9]).abs() < 1e-3)}

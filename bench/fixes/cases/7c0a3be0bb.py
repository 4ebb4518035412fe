"""The transformer of Mimi looks back no further than its window."""

import torch
import transformers
from sizes import MIMI

CASE = {
    "symptom": "Mimi attends to frames before its sliding window: other codes for a sound longer than it",
    "signals": ("audio_codes", "audio_values", "hidden_states"),
    "source": ("MimiTransformerModel", "modeling_mimi.py", "create_sliding_window_causal_mask"),
}


def make(folder: str) -> None:
    """Write a tiny Mimi with a window of four frames."""
    config = transformers.MimiConfig(
        **MIMI, intermediate_size=48, layer_scale_initial_scale=1.0, initializer_range=0.3
    )
    transformers.MimiModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the last of 16 frames sees the first one, 15 frames before it."""
    model = transformers.MimiModel.from_pretrained(folder).eval()
    torch.manual_seed(1)
    frames = torch.randn(1, 16, 32)
    other = frames.clone()
    other[0, 0] = torch.randn(32)
    with torch.no_grad():
        states = [model.encoder_transformer(x).last_hidden_state[0, -1] for x in (frames, other)]
    return {"sees a far frame": bool((states[0] - states[1]).abs().max() > 1e-3)}

"""TimesFM 2.5 computes its loss from normalised series."""

import torch
import transformers

CASE = {
    "symptom": "the training loss of TimesFM 2.5 grows with the unit of the series",
    "area": "loss",
    "findings": ("SB841",),
    "signals": ("loss",),
    "source": ("TimesFm2_5ModelForPrediction", "modeling_timesfm2_5.py"),
}


def make(folder: str) -> None:
    """Write a tiny TimesFM 2.5."""
    config = transformers.TimesFm2_5Config(
        patch_length=8,
        context_length=32,
        horizon_length=8,
        quantiles=[0.1, 0.5, 0.9],
        hidden_size=16,
        intermediate_size=24,
        head_dim=8,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=2,
        output_quantile_len=16,
        decode_index=2,
        initializer_range=0.3,
    )
    transformers.TimesFm2_5ModelForPrediction(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the losses of a series and of the same one in a unit a hundred times smaller."""
    model = transformers.TimesFm2_5ModelForPrediction.from_pretrained(folder).eval()
    past, future = torch.sin(torch.arange(32.0)), torch.sin(torch.arange(32.0, 40.0))
    with torch.no_grad():
        losses = [
            model(past_values=[past * unit], future_values=future[None] * unit).loss
            for unit in (1, 100)
        ]
    return {"losses": [round(float(loss), 3) for loss in losses]}

"""Informer takes series of one variable."""

import torch
import transformers

CASE = {
    "symptom": "a forward of Informer with input_size 1 raises RuntimeError",
    "findings": ("SB931", "SB932"),
    "failure": "Tensors must have same number of dimensions",
    "says": (r"create_network_inputs",),
    "source": ("create_network_inputs", "modeling_informer.py"),
}


def make(folder: str) -> None:
    """Write a tiny Informer for one variable."""
    config = transformers.InformerConfig(
        prediction_length=4,
        context_length=8,
        input_size=1,
        lags_sequence=[1, 2],
        num_time_features=1,
        num_static_real_features=1,
        scaling="std",
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
    )
    transformers.InformerModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the last states of two series."""
    model = transformers.InformerModel.from_pretrained(folder).eval()
    torch.manual_seed(1)
    inputs = {
        "past_values": torch.randn(2, 10, 1),
        "past_time_features": torch.randn(2, 10, 1),
        "past_observed_mask": torch.ones(2, 10, 1),
        "static_real_features": torch.randn(2, 1),
        "future_values": torch.randn(2, 4, 1),
        "future_time_features": torch.randn(2, 4, 1),
    }
    with torch.no_grad():
        return list(model(**inputs).last_hidden_state.shape)

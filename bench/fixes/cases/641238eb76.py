"""VITS speaks in bfloat16."""

import torch
import transformers

CASE = {
    "symptom": "VITS in bfloat16 raises RuntimeError, as its mask of pads is float32 wherever its weights are not",
    "failure": "must have the same dtype",
    "says": (
        r"expected (m1 and m2|mat1 and mat2|scalar type)",
        r"Input type .*BFloat16",
        r"same dtype",
    ),
    "source": ("VitsModel", "modeling_vits.py"),
}


def make(folder: str) -> None:
    """Write a tiny VITS in bfloat16."""
    config = transformers.VitsConfig(
        vocab_size=38,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=32,
        flow_size=16,
        spectrogram_bins=9,
        use_stochastic_duration_prediction=False,
        prior_encoder_num_wavenet_layers=1,
        duration_predictor_filter_channels=16,
        upsample_initial_channel=32,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
    )
    transformers.VitsModel(config).to(torch.bfloat16).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many samples it speaks, or the exception."""
    model = transformers.VitsModel.from_pretrained(folder, torch_dtype=torch.bfloat16).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        wave = model(torch.arange(3, 12)[None]).waveform
    return wave.ndim

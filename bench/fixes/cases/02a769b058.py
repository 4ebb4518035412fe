"""AutoConfig and AutoModel know FastSpeech2Conformer with its vocoder."""

import torch
import transformers

CASE = {
    "symptom": "AutoModel does not load a FastSpeech2Conformer with its vocoder: unknown model type",
    "area": "loading and saving",
    "signals": ("load",),
    "failure": "fastspeech2_conformer_with_hifigan",
    "says": (r"fastspeech2_conformer_with_hifigan", r"FastSpeech2ConformerWithHifiGan"),
    "source": ("configuration_auto.py", "modeling_auto.py"),
}


def make(folder: str) -> None:
    """Write a tiny FastSpeech2Conformer with its vocoder."""
    layers = {
        f"{part}_{name}": value
        for part in ("duration_predictor", "energy_predictor", "pitch_predictor")
        for name, value in {"layers": 1, "channels": 16}.items()
    }
    config = transformers.FastSpeech2ConformerWithHifiGanConfig(
        model_config={
            "hidden_size": 32,
            "vocab_size": 40,
            "num_mel_bins": 8,
            "encoder_layers": 1,
            "encoder_linear_units": 48,
            "decoder_layers": 1,
            "decoder_linear_units": 48,
            "speech_decoder_postnet_layers": 2,
            "speech_decoder_postnet_units": 16,
            **layers,
        },
        vocoder_config={
            "model_in_dim": 8,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
            "resblock_kernel_sizes": [3],
            "resblock_dilation_sizes": [[1, 3]],
        },
    )
    transformers.FastSpeech2ConformerWithHifiGan(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class that AutoModel loads, and whether the waveform has numbers only."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        waveform = model(torch.arange(3, 9)[None]).waveform
    return {"class": type(model).__name__, "finite": bool(waveform.isfinite().all())}

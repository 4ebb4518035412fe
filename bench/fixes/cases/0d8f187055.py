"""Qwen2.5-Omni speaks without guidance."""

import qwen2_5_omni
import torch
import transformers

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen2.5-Omni's voice raises for guidance_scale=0, as it makes two rows of one",
    "says": (r"guidance_scale", r"Token2WavDiTModel"),
    "source": ("Qwen2_5OmniToken2WavDiTModel", "sample"),
}
ROPE = {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}}


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-Omni with its voice."""
    qwen2_5_omni.make(folder, ROPE, 24)


def observe(folder: str) -> object:
    """Return the shape of the voice of a few codes without guidance, or the exception."""
    model = transformers.Qwen2_5OmniForConditionalGeneration.from_pretrained(folder).eval()
    voice = model.token2wav.code2wav_dit_model
    given = {
        "conditioning_vector": torch.zeros(1, 8),
        "reference_mel_spectrogram": torch.zeros(1, 30, 8),
        "quantized_code": torch.arange(5, 17)[None],
    }
    return {scale: _shape(voice, given, scale) for scale in (0.0, 0.5)}


def _shape(voice: torch.nn.Module, given: dict[str, torch.Tensor], scale: float) -> object:
    torch.manual_seed(0)
    try:
        return [*voice.sample(**given, num_steps=3, guidance_scale=scale).shape]
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}"[:120]

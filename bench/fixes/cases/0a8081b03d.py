"""Whisper's encoder is offloaded to the disk."""

import torch
import transformers
from sizes import WHISPER

CASE = {
    "packages": ("accelerate",),
    "symptom": "Whisper with its encoder offloaded raises RuntimeError: it reads the table of positions without its module",
    "failure": "meta",
    "says": (r"[Oo]ffload", r"device_map", r"on device meta", r"meta device"),
    "source": ("WhisperEncoder.forward", "modeling_whisper.py"),
}


def make(folder: str) -> None:
    """Write a tiny Whisper."""
    config = transformers.WhisperConfig(
        **WHISPER,
        encoder_layers=1,
        decoder_layers=1,
        vocab_size=64,
        max_source_positions=8,
        max_target_positions=16,
    )
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits where the encoder lies on the disk, or the exception."""
    places = {"model.encoder": "disk", "model.decoder": "cpu", "proj_out": "cpu"}
    try:
        model = transformers.WhisperForConditionalGeneration.from_pretrained(
            folder, device_map=places, offload_folder=f"{folder}/offloaded"
        )
        with torch.no_grad():
            output = model(torch.ones(1, 8, 16), decoder_input_ids=torch.tensor([[3, 4]]))
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:120]
    return [*output.logits.shape]

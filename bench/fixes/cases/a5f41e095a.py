"""Whisper generates with the help of its decoder as an assistant."""

import torch
import transformers
from sizes import WHISPER

CASE = {
    "symptom": "generate() of Whisper with a WhisperForCausalLM as assistant raises UnboundLocalError",
    "area": "generation",
    "failure": "local variable 'is_updated'",
    "says": (r"WhisperForCausalLM.*UnboundLocalError",),
    "source": (
        "WhisperAttention",
        "WhisperDecoder",
        "modeling_whisper.py",
        "candidate_generator.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Whisper."""
    config = transformers.WhisperConfig(
        vocab_size=128,
        **WHISPER,
        encoder_layers=3,
        decoder_layers=2,
        max_source_positions=16,
        max_target_positions=32,
    )
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens of generate() alone and with an assistant."""
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    assistant = transformers.WhisperForCausalLM.from_pretrained(folder).eval()
    return {
        "alone": tokens(model),
        "with an assistant": tokens(model, assistant_model=assistant),
    }


def tokens(model: transformers.PreTrainedModel, **options: object) -> object:
    """Return the number of tokens, or the exception."""
    torch.manual_seed(1)
    features = torch.randn(1, 8, 32)
    try:
        output = model.generate(
            features, max_new_tokens=6, min_new_tokens=6, do_sample=False, **options
        )
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return output.shape[1]

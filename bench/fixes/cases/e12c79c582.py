"""Whisper counts the positions of a text behind the pads of its batch."""

import numpy as np
import torch
import transformers
from sizes import WHISPER

CASE = {
    "symptom": "Whisper transcribes long sounds of a batch otherwise than each alone: positions count the pads on the left",
    "says": (r"decoder_position_ids", r"prepare_inputs_for_generation"),
    "source": (
        "prepare_inputs_for_generation",
        "WhisperForConditionalGeneration",
        "modeling_whisper.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Whisper with its feature extractor."""
    config = transformers.WhisperConfig(
        vocab_size=140,
        **WHISPER,
        encoder_layers=1,
        decoder_layers=1,
        max_source_positions=50,
        max_target_positions=64,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    settings = {
        "_from_model_config": False,
        "is_multilingual": False,
        "no_timestamps_token_id": 76,
        "prev_sot_token_id": 75,
        "max_initial_timestamp_index": 50,
        "return_timestamps": False,
    }
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the tokens of two sounds of several chunks, each conditioned on those before it."""
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    random = np.random.default_rng(0)
    sounds = [random.normal(size=112000), np.sin(np.arange(96000) / 7)]
    inputs = extractor(
        [sound.astype(np.float32) for sound in sounds],
        sampling_rate=16000,
        return_tensors="pt",
        return_attention_mask=True,
        truncation=False,
        padding="longest",
    )
    torch.manual_seed(0)
    made = model.generate(
        **inputs,
        return_timestamps=True,
        condition_on_prev_tokens=True,
        max_new_tokens=12,
        do_sample=False,
    )
    return made.tolist()

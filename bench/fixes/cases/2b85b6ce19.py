"""Whisper's timestamps of tokens are those of the end of each, by the attention of generated tokens alone."""

import numpy as np
import transformers
from sizes import WHISPER

CASE = {
    "symptom": "Whisper's timestamps of words are wrong: the prompt takes part, and starts are taken for ends",
    "area": "generation",
    "says": (r"timestamp",),
    "source": (
        "_extract_token_timestamps",
        "generation_whisper.py",
        "tokenization_whisper.py",
        "automatic_speech_recognition.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Whisper with its feature extractor."""
    config = transformers.WhisperConfig(
        vocab_size=128,
        **WHISPER,
        encoder_layers=2,
        decoder_layers=2,
        max_source_positions=50,
        max_target_positions=32,
        median_filter_width=3,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    settings = {
        "_from_model_config": False,
        "alignment_heads": [[0, 0], [1, 2]],
        "is_multilingual": False,
        "no_timestamps_token_id": 76,
        "prev_sot_token_id": 75,
        "max_initial_timestamp_index": 10,
        "return_timestamps": False,
    }
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the timestamps of the tokens of a sound."""
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    sound = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    inputs = extractor(sound, sampling_rate=16000, return_tensors="pt", return_attention_mask=True)
    output = model.generate(
        **inputs, max_new_tokens=8, min_new_tokens=8, do_sample=False, return_token_timestamps=True
    )
    return [round(time, 2) for time in output["token_timestamps"][0].tolist()]

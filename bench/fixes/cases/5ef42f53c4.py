"""LasrFeatureExtractor can be called again."""

import numpy as np
from sizes import TOWER
from transformers import AutoFeatureExtractor, LasrCTCConfig, LasrFeatureExtractor, LasrForCTC

CASE = {
    "symptom": "every call of the feature extractor raises TypeError",
    "area": "processor",
    "failure": "_torch_extract_fbank_features",
    "says": ("_torch_extract_fbank_features", "positional argument"),
    "source": (
        "LasrFeatureExtractor",
        "feature_extraction_lasr.py",
        "_torch_extract_fbank_features",
    ),
    "packages": ("librosa",),
}


def make(folder: str) -> None:
    """Write the artefact."""
    encoder = {
        **TOWER,
        "num_key_value_heads": 4,
        "subsampling_conv_channels": 16,
        "initializer_range": 0.2,
    }
    LasrForCTC(LasrCTCConfig(vocab_size=16, encoder_config=encoder)).save_pretrained(folder)
    LasrFeatureExtractor().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    extractor = AutoFeatureExtractor.from_pretrained(folder)
    sound = np.sin(np.arange(8000) / 9).astype(np.float32)
    features = extractor(sound, sampling_rate=16000, return_tensors="pt")["input_features"]
    return list(features.shape)

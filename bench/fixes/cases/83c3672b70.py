"""A Wav2Vec2 without a vocabulary loads."""

import transformers
from saved import edit

CASE = {
    "symptom": "a Wav2Vec2 whose config.json has vocab_size: null does not load: StrictDataclassFieldValidationError",
    "findings": ("SB205",),
    "failure": "vocab_size",
    "says": (r"vocab_size",),
    "source": ("Wav2Vec2Config", "configuration_wav2vec2.py"),
}


def make(folder: str) -> None:
    """Write a tiny Wav2Vec2 whose config states no vocabulary, as those of speech models of other packages do."""
    config = transformers.Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        conv_dim=(16, 16),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    )
    transformers.Wav2Vec2Model(config).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    edit(folder, vocab_size=None)


def observe(folder: str) -> object:
    """Return the class that loads, or the exception."""
    return type(transformers.AutoModel.from_pretrained(folder)).__name__

"""Pop2Piano's feature extractor can be imported."""

import transformers
from sizes import T5

CASE = {
    "made": "4.49.0",
    "packages": ("essentia", "librosa", "pretty_midi", "scipy", "setuptools<81"),
    "symptom": "Pop2Piano's feature extractor, tokenizer and processor cannot be imported, and do not load",
    "area": "processor",
    "findings": ("SB102", "SB837", "SB810"),
    "failure": "Pop2Piano",
    "says": (r"Pop2Piano(FeatureExtractor|Processor|Tokenizer)",),
    "source": ("models/pop2piano", "Pop2PianoFeatureExtractor", "Pop2PianoProcessor"),
}


def make(folder: str) -> None:
    """Write a tiny Pop2Piano with its feature extractor."""
    transformers.Pop2PianoFeatureExtractor().save_pretrained(folder)
    config = transformers.Pop2PianoConfig(
        vocab_size=64,
        **T5,
        num_layers=1,
        num_decoder_layers=1,
        composer_vocab_size=4,
    )
    transformers.Pop2PianoForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class that loads, or the exception."""
    return type(transformers.AutoFeatureExtractor.from_pretrained(folder)).__name__

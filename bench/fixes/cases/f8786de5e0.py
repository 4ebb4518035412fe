"""AutoTokenizer finds the tokenizer of FastSpeech2Conformer, which has Fast in front."""

import json
import os
import pathlib
import tempfile
import zipfile

import transformers

CASE = {
    "packages": ("g2p_en",),
    "symptom": "AutoTokenizer looks for Speech2ConformerTokenizer and does not load the tokenizer",
    "area": "tokenizer",
    "signals": ("tokenizer", "load"),
    "findings": ("SB810",),
    "failure": "Couldn't instantiate the backend tokenizer",
    "says": (r"Speech2ConformerTokenizer", r"TokenizersBackend"),
    "source": ("tokenization_auto.py",),
}


def make(folder: str) -> None:
    """Write a tiny FastSpeech2Conformer with its tokenizer."""
    pronounce()
    words = ["<blank>", "<unk>", "HH", "AH0", "L", "OW1", ".", "<sos/eos>"]
    vocab = pathlib.Path(folder, "vocab.json")
    vocab.write_text(json.dumps({word: number for number, word in enumerate(words)}))
    transformers.FastSpeech2ConformerTokenizer(str(vocab)).save_pretrained(folder)
    layers = {
        f"{part}_{name}": value
        for part in ("duration_predictor", "energy_predictor", "pitch_predictor")
        for name, value in {"layers": 1, "channels": 16}.items()
    }
    config = transformers.FastSpeech2ConformerConfig(
        hidden_size=32,
        vocab_size=len(words),
        num_mel_bins=8,
        encoder_layers=1,
        encoder_linear_units=48,
        decoder_layers=1,
        decoder_linear_units=48,
        speech_decoder_postnet_layers=2,
        speech_decoder_postnet_units=16,
        **layers,
    )
    transformers.FastSpeech2ConformerModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the tokenizer that AutoTokenizer loads."""
    pronounce()
    return type(transformers.AutoTokenizer.from_pretrained(folder)).__name__


def pronounce() -> None:
    """Write a dictionary of one word where g2p_en looks for what it would download."""
    place = pathlib.Path(tempfile.mkdtemp())
    os.environ["NLTK_DATA"] = str(place)
    for name, files in {
        "taggers/averaged_perceptron_tagger": {},
        "corpora/cmudict": {"cmudict/cmudict": "HELLO 1 HH AH0 L OW1\n"},
    }.items():
        (place / name).parent.mkdir(parents=True)
        with zipfile.ZipFile(place / f"{name}.zip", "w") as archive:
            archive.writestr(f"{pathlib.Path(name).name}/", "")
            for file, text in files.items():
                archive.writestr(file, text)

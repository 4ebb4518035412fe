"""Whisper's processor has the fast tokenizer where its files are there."""

import json
from pathlib import Path

import transformers
from sizes import WHISPER

CASE = {
    "symptom": "WhisperProcessor loads the slow tokenizer although tokenizer.json is there: no offsets of letters",
    "says": (r"WhisperTokenizer\b", r"is_fast", r"offsets?_mapping"),
    "source": ("WhisperProcessor", "processing_whisper.py", "WhisperTokenizer"),
}
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]


def make(folder: str) -> None:
    """Write a tiny Whisper with its processor."""
    letters = [chr(number) for number in range(ord("a"), ord("z") + 1)]
    words = ["Ġ", *letters, *(f"Ġ{letter}" for letter in letters), *SPECIAL]
    vocab = {word: number for number, word in enumerate(words)}
    Path(folder, "vocab.json").write_text(json.dumps(vocab), "utf-8")
    merges = [f"Ġ {letter}" for letter in letters]
    Path(folder, "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), "utf-8")
    marks = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), SPECIAL[0])
    slow = transformers.WhisperTokenizer(
        f"{folder}/vocab.json",
        f"{folder}/merges.txt",
        additional_special_tokens=SPECIAL[1:],
        **marks,
    )
    slow.save_pretrained(folder)
    tokenizer = transformers.WhisperTokenizerFast.from_pretrained(folder)
    sounds = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    transformers.WhisperProcessor(sounds, slow).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sizes = WHISPER | {"pad_token_id": 53, "bos_token_id": 53, "eos_token_id": 53}
    config = transformers.WhisperConfig(
        **sizes | {"decoder_start_token_id": 54},
        encoder_layers=1,
        decoder_layers=1,
        vocab_size=64,
        max_source_positions=50,
        max_target_positions=32,
    )
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the processor's tokenizer, and the offsets of a text or the exception."""
    tokenizer = transformers.AutoProcessor.from_pretrained(folder).tokenizer
    try:
        offsets = tokenizer("ab cd", return_offsets_mapping=True)["offset_mapping"]
    except NotImplementedError as error:
        offsets = f"{type(error).__name__}"
    return [type(tokenizer).__name__, offsets]

"""Whisper's tokenizer decodes a batch with its timestamps."""

import tokenizers
import transformers
from sizes import BART

CASE = {
    "symptom": "WhisperTokenizer.decode of a batch with decode_with_timestamps=True raises TypeError",
    "failure": "'>=' not supported",
    "says": (r"decode_with_timestamps", r"'>=' not supported"),
    "source": ("_decode_with_timestamps", "WhisperTokenizer", "tokenization_whisper.py"),
}
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]


def make(folder: str) -> None:
    """Write a tiny Whisper with its tokenizer of bytes."""
    words = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *SPECIAL]
    vocab = {word: number for number, word in enumerate(words)}
    transformers.WhisperTokenizer(
        vocab=vocab, merges=[], additional_special_tokens=SPECIAL[1:]
    ).save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)
    start = vocab["<|startoftranscript|>"]
    config = transformers.WhisperConfig(
        vocab_size=len(words) + 51,
        num_mel_bins=8,
        **BART,
        encoder_layers=1,
        decoder_layers=1,
        max_source_positions=50,
        max_target_positions=32,
        init_std=0.3,
        pad_token_id=vocab["<|endoftext|>"],
        bos_token_id=vocab["<|endoftext|>"],
        eos_token_id=vocab["<|endoftext|>"],
        decoder_start_token_id=start,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the texts of a batch with the timestamps, or the exception."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("hi", add_special_tokens=False)["input_ids"]
    first = max(tokenizer.all_special_ids) + 1
    return tokenizer.decode(
        [[first, *ids, first + 10], [first, *ids, first + 20]], decode_with_timestamps=True
    )

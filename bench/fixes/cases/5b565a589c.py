"""The tokenizer of phonemes keeps the marks between words and phones out of its words."""

import json
from pathlib import Path

import transformers

CASE = {
    "made": "4.57.6",
    "failure": "unexpected keyword argument 'return_offsets_mapping'",
    "symptom": "Wav2Vec2PhonemeCTCTokenizer raises TypeError for every text, and has two more words than its model",
    "says": (r"delimiter",),
    "source": (
        "Wav2Vec2PhonemeCTCTokenizer",
        "tokenization_wav2vec2_phoneme.py",
        "_set_model_specific_special_tokens",
    ),
}
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "d", "e", "k", "m", "n", "o", "s", "t"]


def make(folder: str) -> None:
    """Write a tiny Wav2Vec2 with its tokenizer."""
    vocab = {word: number for number, word in enumerate(WORDS)}
    path = Path(folder, "vocab.json")
    path.write_text(json.dumps(vocab), "utf-8")
    tokenizer = transformers.Wav2Vec2PhonemeCTCTokenizer(
        str(path), do_phonemize=False, phone_delimiter_token="-", word_delimiter_token="|"
    )
    sounds = transformers.Wav2Vec2FeatureExtractor()
    transformers.Wav2Vec2Processor(sounds, tokenizer).save_pretrained(folder)
    config = transformers.Wav2Vec2Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        conv_dim=[16, 16],
        conv_stride=[5, 4],
        conv_kernel=[10, 8],
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        pad_token_id=0,
    )
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many words the tokenizer has, its marks, and the ids of a text or the exception."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    try:
        ids = tokenizer("a b k").input_ids
    except TypeError as error:
        ids = f"TypeError: {error}"[-70:]
    marks = [tokenizer.phone_delimiter_token, tokenizer.word_delimiter_token]
    return [len(tokenizer), marks, ids]

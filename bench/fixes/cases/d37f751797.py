"""Marian takes the first code of a language from a text, and nothing else."""

import json
import pathlib

import sentencepiece
import transformers
from sizes import BART

CASE = {
    "symptom": "MarianTokenizer drops all between >> and the last << of a text as if it were the code of a language",
    "signals": ("tokenizer", "ids"),
    "says": (r">>.*<<",),
    "source": ("MarianTokenizer", "tokenization_marian.py", "remove_language_code"),
}
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    "hello world, how are you today",
    "shift 1 << 2 and 8 >> 2 are numbers",
)


def make(folder: str) -> None:
    """Write a tiny Marian with its tokenizer, as on the hub: two models of pieces and a vocabulary."""
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS * 20),
            model_prefix=f"{folder}/{side}",
            vocab_size=40,
            minloglevel=2,
        )
        pathlib.Path(folder, f"{side}.vocab").unlink()
        pathlib.Path(folder, f"{side}.model").rename(pathlib.Path(folder, f"{side}.spm"))
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/source.spm")
    names = [pieces.id_to_piece(number) for number in range(3, pieces.get_piece_size())]
    words = ["</s>", "<unk>", ">>fra<<", ">>deu<<", *names, "<pad>"]
    vocab = {word: number for number, word in enumerate(words)}
    pathlib.Path(folder, "vocab.json").write_text(json.dumps(vocab))
    settings = {"source_lang": "eng", "target_lang": "mul", "tokenizer_class": "MarianTokenizer"}
    pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
    config = transformers.MarianConfig(
        vocab_size=len(words),
        **BART,
        encoder_layers=1,
        decoder_layers=1,
        max_position_embeddings=64,
        init_std=0.3,
        pad_token_id=len(words) - 1,
        eos_token_id=0,
        decoder_start_token_id=len(words) - 1,
        forced_eos_token_id=0,
    )
    transformers.MarianMTModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of texts with marks of a shift to the left."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = (">>fra<< shift 1 << 2", "8 >> 2 and 1 << 2")
    return [tokenizer(text)["input_ids"] for text in texts]

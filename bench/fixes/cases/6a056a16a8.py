"""DebertaV2Tokenizer adds [CLS] and [SEP] again."""

import json
import pathlib

import sentencepiece
from sizes import TOWER
from transformers import AutoTokenizer, DebertaV2Config, DebertaV2Model

CASE = {
    "symptom": "ids of a deberta-v3 tokenizer (spm.model) have no [CLS] and [SEP]",
    "signals": ("tokenizer", "ids"),
    "says": ("\\[CLS\\]", "special tokens?", "post_processor"),
    "source": ("DebertaV2Tokenizer", "tokenization_deberta_v2.py", "post_processor"),
}


TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    "hello world, how are you today",
    "a tokenizer of a model has pieces",
)


def make(folder: str) -> None:
    """Write the artefact."""
    # as on the hub: spm.model, tokenizer_config.json and config.json, no tokenizer.json
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20),
        model_prefix=f"{folder}/spm",
        vocab_size=40,
        pad_id=0,
        pad_piece="[PAD]",
        bos_id=1,
        bos_piece="[CLS]",
        eos_id=2,
        eos_piece="[SEP]",
        unk_id=3,
        unk_piece="[UNK]",
        user_defined_symbols=["[MASK]"],
        minloglevel=2,
    )
    pathlib.Path(folder, "spm.vocab").unlink()
    pathlib.Path(folder, "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "vocab_type": "spm"})
    )
    config = DebertaV2Config(
        vocab_size=40,
        **TOWER,
        initializer_range=0.2,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
    )
    DebertaV2Model(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("hello world")["input_ids"]
    return {"class": type(tokenizer).__name__, "tokens": tokenizer.convert_ids_to_tokens(ids)}

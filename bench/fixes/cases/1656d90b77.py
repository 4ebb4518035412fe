"""TAPAS takes a table of pandas 3."""

from pathlib import Path

import pandas as pd
import transformers
from sizes import TOWER

CASE = {
    "packages": ("pandas>=3",),
    "symptom": "TAPAS' tokenizer raises TypeError for a table of strings of pandas 3",
    "failure": "len() of unsized object",
    "says": (r"pandas", r"add_numeric_table_values"),
    "source": ("add_numeric_table_values", "tokenization_tapas.py", "TapasTokenizer"),
}
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[EMPTY]",
    *"abcdefghij0123456789",
    "who",
    "age",
]


def make(folder: str) -> None:
    """Write a tiny TAPAS with its tokenizer."""
    vocab = Path(folder, "vocab.txt")
    vocab.write_text("\n".join(WORDS), "utf-8")
    transformers.TapasTokenizer(str(vocab)).save_pretrained(folder)
    config = transformers.TapasConfig(vocab_size=64, **TOWER, max_position_embeddings=64)
    transformers.TapasForQuestionAnswering(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of a question and a table."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    table = pd.DataFrame({"who": ["a", "b"], "age": ["12", "34"]})
    return tokenizer(table=table, queries="who")["input_ids"]

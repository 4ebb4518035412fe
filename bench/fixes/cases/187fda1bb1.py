"""Camembert for multiple choice has its pooler.

https://github.com/huggingface/transformers/pull/47121
"""

import torch
import transformers
from sizes import IDS, PLAIN_TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "made": "5.14.0",
    "symptom": "every forward of CamembertForMultipleChoice raises IndexError: it has no pooler",
    "signals": ("weights",),
    "findings": ("SB704", "SB208", "SB207"),
    "failure": "IndexError",
    "says": (r"pooler", r"tuple index out of range"),
    "source": ("CamembertForMultipleChoice", "modeling_camembert.py", "pooler"),
}


def make(folder: str) -> None:
    """Write a tiny Camembert for multiple choice, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.CamembertConfig(**PLAIN_TEXT, max_position_embeddings=64, **IDS)
    transformers.CamembertForMultipleChoice(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of logits of two choices, or the exception."""
    model = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(torch.arange(4, 16).reshape(1, 2, 6)).logits.shape[1]

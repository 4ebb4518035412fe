"""The inputs of a tokenizer move to a device together with what they hold in turn."""

import torch
import transformers
from sizes import SMALL
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "BatchEncoding.to leaves tensors where they are that are in an encoding within it",
    "says": (r"BatchEncoding\.to\b",),
    "source": ("BatchEncoding.to",),
}


def make(folder: str) -> None:
    """Write a tiny BERT with a tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.BertConfig(vocab_size=64, **SMALL, initializer_range=0.3, pad_token_id=0)
    transformers.BertModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return where the ids of an encoding within another are after both are moved."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("the cat sat", return_tensors="pt")
    inputs["question"] = tokenizer("a dog ran", return_tensors="pt")
    moved = inputs.to(torch.device("meta"))
    return [str(moved["input_ids"].device), str(moved["question"]["input_ids"].device)]

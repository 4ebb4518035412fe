"""A tokenizer pads rows that are TensorDicts."""

import torch
import transformers
from sizes import SMALL
from tensordict import TensorDict
from tokens import tokenizer_of

CASE = {
    "packages": ("tensordict",),
    "symptom": "tokenizer.pad of TensorDicts raises: it iterates over their rows, not over their keys",
    "findings": ("SB818",),
    "failure": "tensordict",
    "says": (r"(?i)tensordict",),
    "source": ("pad", "tokenization_utils_base.py"),
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make(folder: str) -> None:
    """Write a tiny BERT with its tokenizer."""
    words = [*SPECIAL, "what", "is", "this"]
    tokenizer_of(
        words,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=32, **SMALL, max_position_embeddings=64, initializer_range=0.3
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of two rows that a collator pads."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [
        TensorDict({name: torch.tensor(values) for name, values in tokenizer(text).items()})
        for text in ("what is this", "what")
    ]
    batch = transformers.DataCollatorWithPadding(tokenizer)(rows)
    return batch["input_ids"].tolist()

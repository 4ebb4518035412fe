"""A tokenizer pads rows that are TensorDicts.

https://github.com/huggingface/transformers/pull/42373
"""

import json
import sys

import tokenizers
import torch
import transformers
from tensordict import TensorDict

CASE = {
    "before": "4.57.6",
    "after": "5.0.0",
    "made": "4.57.6",
    "packages": ("tensordict",),
    "symptom": "tokenizer.pad of TensorDicts raises: it iterates over their rows, not over their keys",
    "area": "tokenizer",
    "findings": ("SB818",),
    "failure": "tensordict",
    "says": (r"(?i)tensordict",),
    "source": ("pad", "tokenization_utils_base.py"),
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make(folder: str) -> None:
    """Write a tiny BERT with its tokenizer."""
    torch.manual_seed(0)
    words = [*SPECIAL, "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of two rows that a collator pads."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [
        TensorDict({name: torch.tensor(values) for name, values in tokenizer(text).items()})
        for text in ("what is this", "what")
    ]
    try:
        batch = transformers.DataCollatorWithPadding(tokenizer)(rows)
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return batch["input_ids"].tolist()


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))

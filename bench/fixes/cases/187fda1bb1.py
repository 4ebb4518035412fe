"""Camembert for multiple choice has its pooler.

https://github.com/huggingface/transformers/pull/47121
"""

import json
import sys

import tokenizers
import torch
import transformers

CASE = {
    "before": "5.13.1",
    "after": "5.14.0",
    "made": "5.14.0",
    "symptom": "every forward of CamembertForMultipleChoice raises IndexError: it has no pooler",
    "area": "computation",
    "signals": ("weights",),
    "findings": ("SB704", "SB208", "SB207"),
    "failure": "IndexError",
    "says": (r"pooler", r"tuple index out of range"),
    "source": ("CamembertForMultipleChoice", "modeling_camembert.py", "pooler"),
}
WORDS = "the cat sat on a mat and saw dog ran to big red house with old man"


def make(folder: str) -> None:
    """Write a tiny Camembert for multiple choice, and its tokenizer."""
    torch.manual_seed(0)
    words = ["<pad>", "<s>", "</s>", "<unk>", *WORDS.split()]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    config = transformers.CamembertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.CamembertForMultipleChoice(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of logits of two choices, or the exception."""
    model = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    try:
        with torch.no_grad():
            return model(torch.arange(4, 16).reshape(1, 2, 6)).logits.shape[1]
    except IndexError as error:
        return f"IndexError: {error}"


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))

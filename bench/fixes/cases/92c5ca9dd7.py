"""GPT-NeoX Japanese finds prices in a text without an exponential search."""

import json
from pathlib import Path

import transformers

CASE = {
    "symptom": "GPT-NeoX Japanese with do_clean_text splits a price of millions otherwise, and a long number takes hours",
    "findings": ("SB806", "SB815", "SB816"),
    "says": (r"円",),
    "source": ("SubWordJapaneseTokenizer", "tokenization_gpt_neox_japanese.py", "clean_text"),
}
WORDS = [
    *(
        "<|endoftext|>",
        "<|startoftext|>",
        "<SP>",
        "<BR>",
        "<TAB>",
        "<BLOCK>",
        "<KIGOU>",
        "<U2000U2BFF>",
    ),
    *("<URL>", "<EMAIL>", "<TEL>", "<DATE>", "<PRICE>"),
    *(f"<|byte{number}|>" for number in range(256)),
    *"0123456789円万億千の本は。",
]


def make(folder: str) -> None:
    """Write a tiny GPT-NeoX Japanese with a tokenizer that cleans texts."""
    vocab, emoji = Path(folder, "vocab.txt"), Path(folder, "emoji.json")
    vocab.write_text("\n".join([*WORDS, ","]) + "\n", "utf-8")
    emoji.write_text(json.dumps({"emoji": {}, "emoji_inv": {}}), "utf-8")
    transformers.GPTNeoXJapaneseTokenizer(
        str(vocab), str(emoji), do_clean_text=True
    ).save_pretrained(folder)
    config = transformers.GPTNeoXJapaneseConfig(
        vocab_size=320,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_multiple_size=2,
    )
    transformers.GPTNeoXJapaneseForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the tokens of prices."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [tokenizer.tokenize(text) for text in ("本は1,234,567円", "本は1,200円")]

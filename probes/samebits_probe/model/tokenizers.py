"""Small tokenizers of every kind that checkpoints have, written without any library.

The merges are learned here from a few sentences, so that every stack and machine makes the same files.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

Part = dict[str, Any]
Pair = tuple[str, str]

SENTENCES = (
    "The quick brown fox jumps over the lazy dog. The capital of France is Paris, and people said "
    "hello world. Hello there, don't you know that they have done it? It is the end of the day, "
    "the other day was the first. def f(x): return x + 1, print(f(12345)), café naïve."
)
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
WORDPIECE_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
N_MERGES = 120


def byte_letters() -> dict[int, str]:
    """Return the 256 letters of byte-level BPE, by byte."""
    letters = {byte: chr(byte) for byte in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    others = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(256 + i) for i, byte in enumerate(others)}


def learned_merges(words: Counter[tuple[str, ...]]) -> list[Pair]:
    """Return the most frequent merges of words, each a list of pieces; ties by text."""
    merges: list[Pair] = []
    for _ in range(N_MERGES):
        pairs: Counter[Pair] = Counter(
            pair for word, n in words.items() for pair in pairwise(word) for _ in range(n)
        )
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = Counter({_merged(word, best): n for word, n in words.items()})
    return merges


def _merged(word: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    pieces: list[str] = []
    i = 0
    while i < len(word):
        joined = tuple(word[i : i + 2]) == pair
        pieces.append("".join(pair) if joined else word[i])
        i += 2 if joined else 1
    return tuple(pieces)


def added(
    contents: tuple[str, ...], first: int = 0, *, special: bool = True, **flags: bool
) -> list[Part]:
    """Return entries of added_tokens."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": first + i, "content": content, **plain, "special": special, **flags}
        for i, content in enumerate(contents)
    ]


def template(*special_first: tuple[str, int]) -> Part:
    """Return a post-processor that puts special tokens first."""
    ids = {
        content: {"id": content, "ids": [n], "tokens": [content]} for content, n in special_first
    }
    first = [{"SpecialToken": {"id": content, "type_id": 0}} for content, _ in special_first]
    a, b = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [*first, a],
        "pair": [*first, a, *first, b],
        "special_tokens": ids,
    }


def bpe(vocab: dict[str, int], merges: list[Pair], **changed: Any) -> Part:
    """Return a BPE model."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": [list(merge) for merge in merges],
    } | changed


_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def byte_level(special: tuple[str, ...] = SPECIAL) -> Part:
    """Return byte-level BPE, as of GPT-2, Llama 3, Qwen and DeepSeek."""
    letters = byte_letters()
    words = Counter(tuple(letters[b] for b in f" {word}".encode()) for word in SENTENCES.split())
    merges = learned_merges(words)
    pieces = [*special, *sorted(letters.values()), *("".join(m) for m in merges)]
    return {
        "added_tokens": added(special),
        "normalizer": None,
        "pre_tokenizer": _LEVEL,
        "post_processor": None,
        "decoder": _LEVEL,
        "model": bpe({p: i for i, p in enumerate(dict.fromkeys(pieces))}, merges),
    }


def metaspace() -> Part:
    """Return BPE on words that begin with ▁, with byte fallback, as of Llama 2 and Mistral."""
    words = Counter(tuple(f"▁{word}") for word in SENTENCES.split())
    merges = learned_merges(words)
    pieces = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *sorted({letter for word in words for letter in word}),
        *("".join(merge) for merge in merges),
    ]
    return {
        "added_tokens": added(SPECIAL),
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": template(("<s>", 1)),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": bpe(
            {p: i for i, p in enumerate(dict.fromkeys(pieces))},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        ),
    }


def unigram() -> Part:
    """Return a SentencePiece unigram model, as of T5, XLM-R and CamemBERT."""
    words = sorted(set(SENTENCES.split()))
    letters = sorted({letter for word in words for letter in word} | {"▁"})
    pieces: list[list[str | float]] = [[content, 0.0] for content in SPECIAL]
    pieces += [[f"▁{word}", -2.0 - i / 64] for i, word in enumerate(words)]
    pieces += [[letter, -8.0 - i / 64] for i, letter in enumerate(letters)]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    ends = {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    return {
        "added_tokens": added(SPECIAL),
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [a, end],
            "pair": [a, end, b, end],
            "special_tokens": ends,
        },
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False},
    }


def wordpiece() -> Part:
    """Return WordPiece in lower case, as of BERT."""
    words = sorted({word.strip(".,?:()'").lower() for word in SENTENCES.split()} - {""})
    letters = sorted({letter for word in words for letter in word} | set(".,?!:;()'+-1234567890"))
    pieces = dict.fromkeys(
        [*WORDPIECE_SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words]
    )
    return {
        "added_tokens": added(WORDPIECE_SPECIAL),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: i for i, piece in enumerate(pieces)},
        },
    }


def word_ends() -> Part:
    """Return BPE in lower case whose words end with </w>, as of CLIP."""
    cleaned = SENTENCES.lower().replace(",", " ,").replace(".", " .").split()
    words = Counter((*word[:-1], f"{word[-1]}</w>") for word in cleaned)
    merges = learned_merges(words)
    letters = byte_letters().values()
    special = ("<|startoftext|>", "<|endoftext|>")
    pieces = [*special, *letters, *(f"{letter}</w>" for letter in letters)]
    pieces += [*{piece: None for word in words for piece in word}, *("".join(m) for m in merges)]
    split = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    return {
        "added_tokens": added(special),
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": split},
                    "behavior": "Removed",
                    "invert": True,
                },
                _LEVEL,
            ],
        },
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [special[1], 1],
            "cls": [special[0], 0],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "decoder": _LEVEL,
        "model": bpe(
            {piece: i for i, piece in enumerate(dict.fromkeys(pieces))},
            merges,
            unk_token=special[1],
            continuing_subword_prefix="",
            end_of_word_suffix="</w>",
        ),
    }


KINDS = {
    "byte-level": byte_level,
    "word-ends": word_ends,
    "metaspace": metaspace,
    "unigram": unigram,
    "wordpiece": wordpiece,
}
CHARACTERS = "characters"
"""Kind without tokenizer.json: a vocabulary of characters for a class in Python."""
BYTES = "bytes"
"""Kind without any vocabulary: the class in Python knows all tokens."""
_LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'")
_NAMED_ENDS = {
    "bos_token": "<|startoftext|>",
    "unk_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
}
_NAMED_ENDS["eos_token"] = "<|endoftext|>"
_NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
_NAMED_WORDPIECE = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}


def write(
    folder: Path,
    kind: str,
    /,
    tokenizer_class: str | None = "PreTrainedTokenizerFast",
    *,
    slow_files: bool = False,
    unused: int = 0,
    parts: Part | None = None,
    **config: Any,
) -> None:
    """Write tokenizer.json and tokenizer_config.json of a kind into a folder, or what a class in Python has.

    ``parts`` replace parts of tokenizer.json, by name; ``unused`` tokens are added that no text has. ``slow_files`` adds the files of the class in
    Python. ``config`` are further keys of tokenizer_config.json; one that is None is left out.
    """
    named: dict[str, Any] = {
        "wordpiece": _NAMED_WORDPIECE,
        "word-ends": _NAMED_ENDS,
        BYTES: {},
    }.get(kind, _NAMED)
    written = {"tokenizer_class": tokenizer_class, "model_max_length": 512, **named} | config
    (folder / "tokenizer_config.json").write_text(
        json.dumps({name: value for name, value in written.items() if value is not None}), "utf-8"
    )
    if kind == CHARACTERS:
        vocab = {letter: i for i, letter in enumerate(_LETTERS)}
        (folder / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    if kind not in KINDS:
        return
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, **KINDS[kind]()}
    if unused:
        vocab = tokenizer["model"]["vocab"]
        vocab |= {f"\x1f{i}": len(vocab) + i for i in range(unused)}
    tokenizer |= parts or {}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    if slow_files:
        _write_slow_files(folder, tokenizer["model"])


def _write_slow_files(folder: Path, model: Part) -> None:
    if model["type"] == "WordPiece":
        text = "".join(f"{piece}\n" for piece in model["vocab"])
        (folder / "vocab.txt").write_text(text, "utf-8")
        return
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = "".join(f"{' '.join(merge)}\n" for merge in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", "utf-8")

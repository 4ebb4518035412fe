"""Tokenizers of a few words, which several cases have beside their models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tokenizers
import transformers

NAMED = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
"""Special tokens, in the order of their ids in ``WORDS``."""
MARKS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
_TEXT = "the cat sat on a mat and saw dog ran to big red house with old man"
WORDS = [*NAMED.values(), *_TEXT.split()]
SPACES = tokenizers.pre_tokenizers.WhitespaceSplit()
"""Parts of a text that are between spaces; else marks are apart from letters, too."""


def tokenizer_of(
    words: Iterable[str],
    split: Any = None,
    added: Iterable[str] = (),
    **special: Any,
) -> Any:
    """Return a fast tokenizer whose ids are the places of its words; ``added`` are those that no split cuts."""
    vocab = {word: number for number, word in enumerate(words)}
    unknown = special.get("unk_token", NAMED["unk_token"])
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token=unknown))
    backend.pre_tokenizer = split or tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens([*added])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special)

"""An assistant whose tokenizer is not the model's: it reads the digits of the ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import transformers

from samebits_probe.process.calls import CALLS

Facts = dict[str, Any]
_WIDTH = 6
"""Digits of an id, more than any vocabulary needs."""
_N_DIGITS = 10


class _Digits:
    """A tokenizer for which the text of an id is its number, in so many digits."""

    def __init__(self, width: int, n_ids: int) -> None:
        self._width, self._n_ids = width, n_ids

    def decode(self, ids: Iterable[Any], **_options: Any) -> str:
        """Return the text of ids, a single one or a row of them."""
        return "".join(f"{int(i) % 10**self._width:0{self._width}d}" for i in _flat(ids))

    def batch_decode(self, rows: Iterable[Any], **options: Any) -> list[str]:
        """Return the text of each row."""
        return [self.decode(row, **options) for row in rows]

    def __call__(self, text: str | list[str], **_options: Any) -> Facts:
        """Return the ids of a text, as tensors of one row."""
        joined = text if isinstance(text, str) else "".join(text)
        starts = range(0, len(joined) - self._width + 1, self._width)
        ids = [int(joined[start : start + self._width]) % self._n_ids for start in starts]
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}


def _flat(ids: Any) -> list[int]:
    flat: list[int] = torch.as_tensor(ids).reshape(-1).tolist()
    return flat


def reader_of_digits(n_ids: int) -> tuple[Any, Facts]:
    """Return a tiny model of digits for one of so many ids, and both tokenizers as generate() takes them."""
    CALLS.leave_out("models/llama/")
    # generate() takes an assistant of the same number of ids for one of the same tokenizer
    n_digits = _N_DIGITS + (n_ids == _N_DIGITS)
    config = transformers.LlamaConfig(
        vocab_size=n_digits,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval()
    tokenizers = {"tokenizer": _Digits(_WIDTH, n_ids), "assistant_tokenizer": _Digits(1, n_digits)}
    return model, tokenizers

"""Logits from a table, in place of what a model computes: the same in every release and machine.

The values are made by whole numbers alone. All values of a row are distinct and exact in float32.
24 tokens of each row stand out with large gaps, so rounding cannot change an order among them.
"""

from __future__ import annotations

from typing import Any

import torch

from samebits_probe.questions.usage.subject import NoMeaning

_LOW_BITS, _HIGH_BITS = 22, 16
_N_HIGH = 24
_A, _B = 0x2545F491, 0x9E3779B1


def logits_row(token: int, step: int, vocabulary: int) -> torch.Tensor:
    """Return float32 logits of shape (vocabulary,) behind a token in a step; at most 20."""
    key = (token * _A + step * _B + 1) % (1 << _LOW_BITS)
    row = _mixed(torch.arange(vocabulary), key, _LOW_BITS).float() / 2.0**20
    numbers = torch.arange(_N_HIGH)
    places = _mixed(numbers, key ^ 0x155, _LOW_BITS) % vocabulary
    values = 4 + _mixed(numbers, key, _HIGH_BITS).float() / 2.0**12
    for place, value in zip(places.tolist(), values.tolist(), strict=True):
        row[place] = value
    return row


def _mixed(numbers: torch.Tensor, key: int, bits: int) -> torch.Tensor:
    """Return other numbers of so many bits, each of them once."""
    mask, half = (1 << bits) - 1, bits // 2
    for factor in (_A, _B):
        numbers = ((numbers ^ (key & mask)) * factor) & mask
        numbers = numbers ^ (numbers >> half)
    return numbers


class Table:
    """A forward hook that replaces the logits of a model by those of the table."""

    def __init__(self, *, by_step: bool) -> None:
        self._by_step = by_step
        self.fed: list[list[int]] = []
        """Rows and tokens of each forward."""

    def __call__(self, _module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        """Replace the logits of all positions that a forward returns."""
        ids = kwargs.get("decoder_input_ids", kwargs.get("input_ids", args[0] if args else None))
        logits = getattr(output, "logits", None)
        if ids is None or logits is None or logits.dim() != 3 or logits.shape[1] > ids.shape[1]:
            raise NoMeaning("forward is not fed token ids, or returns no logits for them")
        step = len(self.fed) if self._by_step else 0
        self.fed.append(list(ids.shape))
        tokens = ids[:, -logits.shape[1] :]
        vocabulary = logits.shape[2]
        rows = {t: logits_row(t, step, vocabulary) for t in set(tokens.flatten().tolist())}
        output.logits = torch.stack([torch.stack([rows[t] for t in r]) for r in tokens.tolist()])
        return output

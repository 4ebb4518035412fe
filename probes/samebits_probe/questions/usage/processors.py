"""The logits processors of a release, one by one, on the same ids and the same scores.

All arguments and scores are such that the results are exact: selections, and products with powers
of two. Processors whose results are sums (log-softmax, guidance) are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from samebits_probe.model.tensor import tensor_hash
from samebits_probe.questions.usage.subject import error_text
from samebits_probe.questions.usage.table import logits_row

_VOCABULARY, _END = 64, 3
_IDS = torch.tensor(
    [[5, 7, 9, 5, 7, 11, 5, 7], [2, 2, 4, 8, 16, 2, 2, 4], [9, 1, 9, 1, 9, 1, 9, 1]]
)
_KEPT = "min_tokens_to_keep"
"""Argument of filters: what they keep in any case. More than each of them keeps with its own argument here."""
_OTHER_IDS = torch.tensor([[21, 22, 5, 7, 23, 2, 4, 30]]).repeat(3, 1)


PROCESSORS: Mapping[str, tuple[Any, ...]] = {
    "MinLengthLogitsProcessor": (20, _END),
    "MinNewTokensLengthLogitsProcessor": (6, 4, _END),
    "TemperatureLogitsWarper": (0.5,),
    "RepetitionPenaltyLogitsProcessor": (2.0,),
    "EncoderRepetitionPenaltyLogitsProcessor": (2.0, _OTHER_IDS),
    "TopPLogitsWarper": (0.75,),
    "TopKLogitsWarper": (5,),
    "MinPLogitsWarper": (0.25,),
    "TypicalLogitsWarper": (0.75,),
    "EpsilonLogitsWarper": (0.015625,),
    "NoRepeatNGramLogitsProcessor": (2,),
    "EncoderNoRepeatNGramLogitsProcessor": (2, _OTHER_IDS),
    "SequenceBiasLogitsProcessor": ([[[6], 2.0], [[5, 7, 12], -4.0]],),
    "NoBadWordsLogitsProcessor": ([[6], [7, 13]], _END),
    "PrefixConstrainedLogitsProcessor": (lambda _row, _ids: list(range(0, _VOCABULARY, 2)), 1),
    "ForcedBOSTokenLogitsProcessor": (1,),
    "ForcedEOSTokenLogitsProcessor": (9, _END),
    "InfNanRemoveLogitsProcessor": (),
    "ExponentialDecayLengthPenalty": ((2, 2.0), _END, 4),
    "SuppressTokensLogitsProcessor": ([4, 40],),
    "SuppressTokensAtBeginLogitsProcessor": ([4, 40], 8),
}
"""Class -> its arguments, by position."""


def processors() -> dict[str, dict[str, str]]:
    """Return class -> hash of its scores, or its exception; classes that are missing are left out."""
    return {name: _answer(kind, arguments, named) for name, kind, arguments, named in _asked()}


def _asked() -> Iterator[tuple[str, Any, tuple[Any, ...], dict[str, int]]]:
    """Yield name, class and arguments; a filter once more with the least number that it keeps."""
    from transformers.generation import logits_process  # noqa: PLC0415  slow to import

    for name, arguments in PROCESSORS.items():
        if (kind := getattr(logits_process, name, None)) is None:
            continue
        yield name, kind, arguments, {}
        if _KEPT in inspect.signature(kind).parameters:
            yield f"{name}({_KEPT}={_VOCABULARY // 2})", kind, arguments, {_KEPT: _VOCABULARY // 2}


def _answer(kind: Any, arguments: tuple[Any, ...], named: dict[str, int]) -> dict[str, str]:
    rows = [logits_row(int(row[-1]), 0, _VOCABULARY) - 4 for row in _IDS]
    try:
        scores = kind(*arguments, **named)(_IDS.clone(), torch.stack(rows))
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    return {"scores": tensor_hash(scores + 0.0)}  # no minus zero

"""What the cache holds that generate() returns: how many layers, and how many keys of the encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text

Facts = dict[str, Any]
_STEPS: Facts = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
_RETURNED: Facts = {"return_dict_in_generate": True}
_CROSSED = 2
"""Place of the encoder's keys in a layer of a cache that is a tuple."""


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call that applies to a model that generates."""
    if subject.model.can_generate():
        yield "len(past_key_values) of generate()", partial(_returned, subject)


def _returned(subject: Subject) -> str:
    """Return how many layers a cache has, and how much of the encoder's output its keys are of."""
    if not (fed := subject.fed()):
        raise NoMeaning(subject.refuses_text())
    if not subject.prompts:
        fed = fed | {"attention_mask": torch.ones_like(fed["input_ids"])}
    with torch.no_grad():
        try:
            output = subject.model.generate(**fed, **_STEPS, **_RETURNED)
        except Exception as error:
            raise NoMeaning(f"generate() raises {error_text(error)}") from error
    if (cache := output.get("past_key_values")) is None:
        raise NoMeaning("generate() returns no cache")
    of_encoder = _keys_of_encoder(cache)
    return f"{len(cache)}{f', {of_encoder} keys of the encoder' if of_encoder else ''}"


def _keys_of_encoder(cache: Any) -> int:
    """Return how many keys a decoder has of its encoder; releases up to 4.57 return some caches as tuples."""
    if isinstance(cache, tuple):
        return int(cache[0][_CROSSED].shape[-2]) if len(cache[0]) > _CROSSED else 0
    crossed = getattr(cache, "cross_attention_cache", None)
    return 0 if crossed is None else int(crossed.get_seq_length())

"""A mask for each pair of tokens, [rows, length, length], which BERT and its kind documented in 4.x."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model import load, outputs
from samebits_probe.model.choice import MASK, TOKENS
from samebits_probe.model.distance import same_bytes
from samebits_probe.questions.usage.subject import Subject

PAIRED = "forward(attention_mask=…, one for each pair of tokens)"
_GENERATES = "causal-lm"


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call for an encoder of text: other models documented no such mask."""
    model = subject.model
    encodes = subject.head != _GENERATES and not load.is_encoder_decoder(model)
    if not encodes or not subject.accepts(MASK):
        return
    for fed in subject.prompts.values():
        if set(fed) <= {TOKENS, MASK} and TOKENS in fed and fed[TOKENS].ndim == 2:
            yield PAIRED, partial(_paired, model, fed[TOKENS])
            return


def _paired(model: Any, ids: torch.Tensor) -> str:
    """Return whether a token sees those alone that a mask shows it."""
    every = ids.new_ones(*ids.shape, ids.shape[1])
    with torch.no_grad():
        shown, whole = (
            next(iter(outputs.tensors(model(**{TOKENS: ids, MASK: mask})).values()))
            for mask in (every.tril(), every)
        )
    return "all tokens are shown" if same_bytes(shown, whole) else "the tokens that it shows"

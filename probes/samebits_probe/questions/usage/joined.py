"""What a classifier reads of a text that has the token of pads inside, as between two documents that are joined by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model.inputs import text_config
from samebits_probe.questions.usage.checked import demand_float32
from samebits_probe.questions.usage.subject import HALF, NoMeaning, Subject, error_text
from samebits_wire.arguments import CUT_TEXT, JOINED, WHOLE_TEXT

_CLASSIFIES = "ForSequenceClassification"
_RANK = 2
"""Dimensions of the scores: texts and classes."""
_NEAR = 1e-5
"""Largest distance of scores that are the same but for rounding, as a share of the largest score."""


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call for a model that gives the scores of a whole text."""
    if type(subject.model).__name__.endswith(_CLASSIFIES):
        yield JOINED, partial(_read, subject)


def _read(subject: Subject) -> str:
    """Return whether the scores depend on what stands behind the token."""
    pad = text_config(subject.model.config).pad_token_id
    if pad is None:
        raise NoMeaning("the config has no token of pads")
    demand_float32(subject.model)
    ids = subject.ids("joined")
    try:
        heeds_the_end = _heeds_the_end(subject.model, ids[:, :HALF], ids[:, HALF:])
    except Exception as error:  # its own forward has it
        raise NoMeaning(f"the plain forward raised {error_text(error)}") from error
    if not heeds_the_end:
        raise NoMeaning("it gives no scores that depend on the end of a text")
    joint = torch.cat([ids[:, :HALF], torch.full((1, 1), pad)], 1)
    return WHOLE_TEXT if _heeds_the_end(subject.model, joint, ids[:, HALF:]) else CUT_TEXT


def _heeds_the_end(model: Any, first: torch.Tensor, end: torch.Tensor) -> bool:
    """Return whether two texts that differ in their ends alone have other scores; False for scores of each token."""
    texts = (torch.cat([first, each], 1) for each in (end, end.flip(1)))
    plain, turned = (model(ids).logits.double() for ids in texts)
    distance = float((plain - turned).abs().max())
    return plain.dim() == _RANK and distance > _NEAR * float(plain.abs().max())

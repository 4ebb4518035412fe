"""What forward returns in training mode beside evaluation: its fields, among them a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model.outputs import CACHES
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text

_CACHE = "cache"


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the forward; it leaves the model in evaluation mode."""
    yield "forward in training mode", partial(_in_training, subject)


def _in_training(subject: Subject) -> str:
    """Return which fields the output has in one mode alone."""
    if not (fed := subject.fed()):
        raise NoMeaning(subject.refuses_text())
    model = subject.model
    try:
        plain = _fields(model, fed)
    except Exception as error:
        raise NoMeaning(f"the plain forward raised {error_text(error)}") from error
    model.train()
    try:
        trained = _fields(model, fed)
    finally:
        model.eval()
    words = [f"no {name}" for name in sorted(plain - trained)]
    words += [f"{name} beside them" for name in sorted(trained - plain)]
    return ", ".join(words) or "the fields of evaluation"


def _fields(model: Any, fed: dict[str, Any]) -> set[str]:
    """Return the names of what a forward returns; a cache has other names in other releases."""
    with torch.no_grad():
        output = model(**fed)
    if not hasattr(output, "items"):
        raise NoMeaning("forward returns no named fields")
    return {
        _CACHE if name in CACHES else name for name, value in output.items() if value is not None
    }

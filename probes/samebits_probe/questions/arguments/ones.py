"""Whether an attention mask of ones changes what forward computes of a row with an image, a video or a sound.

Without padding a mask has nothing to hide, so a row has the same numbers with it and without. Forwards that make
positions or a mask of their own may not see to that. Rows of text have it in the relations of padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from samebits_probe.model import forks, outputs
from samebits_probe.model.choice import DECODER, MASK, TOKENS
from samebits_probe.questions.arguments.arguments import Facts, answer, effect_of, raised


def effects(
    model: Any, prompts: Mapping[str, Facts], restore: Callable[[], None]
) -> dict[str, Facts]:
    """Return prompt -> the effect of a mask of ones, for the first prompt of one row that is not of text alone.

    Empty in a lower precision than float32, where rounding may pass for an effect.
    """
    if getattr(model, "dtype", None) != torch.float32 or not forks.accepts(model, MASK):
        return {}
    for name, kwargs in prompts.items():
        if _has_more_than_text(kwargs) and (masks := _both(kwargs)):
            # masks of packed rows are made only where nothing is cached, as in training
            inputs = (mask | forks.uncached(model) for mask in masks)
            return {name: {"named": True} | _effect(model, inputs, restore)}
    return {}


def _has_more_than_text(kwargs: Facts) -> bool:
    tokens = kwargs.get(TOKENS)
    is_row = isinstance(tokens, torch.Tensor) and tokens.dim() == 2 and tokens.shape[0] == 1
    return is_row and bool(kwargs.keys() - {TOKENS, MASK, DECODER})


def _both(kwargs: Facts) -> tuple[Facts, Facts] | None:
    """Return the inputs without a mask and with one of ones; None if the prompt's own mask hides something."""
    given = kwargs.get(MASK)
    if given is not None and not bool((given == 1).all()):
        return None
    without = {name: value for name, value in kwargs.items() if name != MASK}
    return without, {**without, MASK: torch.ones_like(kwargs[TOKENS])}


def _effect(model: Any, inputs: Iterable[Facts], restore: Callable[[], None]) -> Facts:
    try:
        first, second = (outputs.logits_of(answer(model, kwargs, restore)) for kwargs in inputs)
    except Exception as error:  # noqa: BLE001  that it raises is the observation
        return raised(error)
    return effect_of(first, second)

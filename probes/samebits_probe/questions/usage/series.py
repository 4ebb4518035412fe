"""Series of one variable with a dimension for it, as data loaders make them; a prompt has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from samebits_probe.model.series_shapes import PAST, number

_OF_VARIABLES = (PAST, "past_observed_mask", "future_values", "future_observed_mask")
_WITHOUT = 2
"""Dimensions of series of one variable in a prompt."""


def calls(
    model: Any, prompts: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call that applies to a model of series whose config says how many variables they have."""
    fed = next((fed for fed in prompts.values() if PAST in fed), None)
    if fed is None or number(model.config, "input_size") != 1 or fed[PAST].ndim != _WITHOUT:
        return
    yield f"forward({PAST}=…) with a dimension of one variable", partial(_forward, model, fed)


def _forward(model: Any, fed: dict[str, Any]) -> str:
    """Return the shape of what comes first; its numbers are those of a prompt, or scaled otherwise."""
    given = {
        name: value[..., None] if name in _OF_VARIABLES else value for name, value in fed.items()
    }
    with torch.no_grad():
        output = model(**given)
    name, value = next((n, v) for n, v in output.items() if torch.is_tensor(v))
    return f"{name} {[*value.shape]}"

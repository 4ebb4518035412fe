"""Small models to try inputs in, made by a class from a config with random weights."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model import forks, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BYTES = 1 << 30
"""Bytes in float32 up to which a model is made."""
MAX_REASON = 300
"""Characters of the exception of such a model."""


def small_models(model_class: Any, config: Any) -> Iterator[Any]:
    """Yield models of the config, or of one with fewer layers, that are small enough to try things in."""
    smaller = (plan.config for plan in shrink.plans(config.to_dict(), {}))
    for values in (None, *smaller):
        try:
            made = copy.deepcopy(config) if values is None else type(config).from_dict(values)
            arguments = {forks.dtype_keyword(): torch.float32}
            with torch.device("meta"):
                skeleton = model_class._from_config(copy.deepcopy(made), **arguments)
            if 4 * sum(p.numel() for p in skeleton.parameters()) > _MAX_BYTES:
                continue
            torch.manual_seed(0)
            yield model_class._from_config(made, **arguments).eval()
        except Exception:  # noqa: BLE001, S112  a class may refuse a config in any way
            continue

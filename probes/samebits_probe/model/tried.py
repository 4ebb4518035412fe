"""Small models to try inputs in, made by a class from a config with random weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch

from samebits_probe.model import forks, shrink

_MAX_BYTES, _QUICK_BYTES = 1 << 30, 1 << 26
"""Bytes in float32 up to which a model is made, and up to which a forward of it is quick."""
MAX_REASON = 300
"""Characters of the exception of such a model."""


def small_models(model_class: Any, config: Any) -> Iterator[Any]:
    """Yield models of the config, or of one with fewer layers, that are small enough to try things in.

    A model of the whole config comes first if a forward of it is quick, else last.
    """
    smaller = [plan.config for plan in shrink.plans(config.to_dict(), {})]
    is_quick = _n_bytes(model_class, config) <= _QUICK_BYTES
    for values in (None, *smaller) if is_quick else (*smaller, None):
        try:
            made = copy.deepcopy(config) if values is None else type(config).from_dict(values)
            if _n_bytes(model_class, made) > _MAX_BYTES:
                continue
            torch.manual_seed(0)
            yield model_class._from_config(made, **forks.in_float32()).eval()
        except Exception:  # noqa: BLE001, S112  a class may refuse a config in any way
            continue


def _n_bytes(model_class: Any, config: Any) -> float:
    """Return the bytes of a config's parameters in float32; without end if its class refuses it."""
    try:
        with torch.device("meta"):
            skeleton = model_class._from_config(copy.deepcopy(config), **forks.in_float32())
    except Exception:  # noqa: BLE001  a class may refuse a config in any way
        return math.inf
    return 4.0 * sum(int(p.numel()) for p in skeleton.parameters())

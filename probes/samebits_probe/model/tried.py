"""Small models to try inputs in, made by a class from a config with random weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from samebits_probe.model import forks, shrink
from samebits_probe.model.inputs import seeded_ids, token_config

_MAX_BYTES, _QUICK_BYTES = 1 << 30, 1 << 26
"""Bytes in float32 up to which a model is made, and up to which a forward of it is quick."""
_N_IDS = 5
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


def needs_mask(model_class: Any, config: Any) -> bool:
    """Return True if a small model takes a row of token ids with a mask of ones, and raises without one."""
    for model in islice(small_models(model_class, config), 1):
        ids = torch.tensor([seeded_ids("mask", _N_IDS, token_config(model.config))])
        return not _takes(model, input_ids=ids) and _takes(
            model, input_ids=ids, attention_mask=torch.ones_like(ids)
        )
    return False


def _takes(model: Any, **kwargs: torch.Tensor) -> bool:
    try:
        with torch.no_grad():
            model(**kwargs)
    except Exception:  # noqa: BLE001  a forward may refuse inputs in any way
        return False
    return True


def _n_bytes(model_class: Any, config: Any) -> float:
    """Return the bytes of a config's parameters in float32; without end if its class refuses it."""
    try:
        with torch.device("meta"), _Zeros():
            skeleton = model_class._from_config(copy.deepcopy(config), **forks.in_float32())
    except Exception:  # noqa: BLE001  a class may refuse a config in any way
        return math.inf
    return 4.0 * sum(int(p.numel()) for p in skeleton.parameters())


class _Zeros(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Reads zeros from tensors without values: a class that computes its rates of dropped paths has a size, too."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _READS and args[0].is_meta:
            first = args[0]
            args = (torch.zeros(first.shape, dtype=first.dtype, device="cpu"), *args[1:])
        return func(*args, **(kwargs or {}))


_READS = frozenset(
    {
        torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy,
        torch.Tensor.__float__, torch.Tensor.__int__, torch.Tensor.__bool__,
    }
)  # fmt: skip
"""What raises on the meta device."""

"""What tables of positions give that their modules make longer where a row has more positions than they have."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.questions.usage.subject import NoMeaning

_GROWS, _TABLES = ("make_weights", "make_weight"), ("weights", "weight")
_SHORT = 3
"""Positions that any table has."""
_ID = 7
"""A token that pads no row."""
_NEAR = 1e-3
"""Up to where sines are the same: how many are computed at once decides how they round."""
_RANKS = (2, 3)
"""Dimensions of ids: of rows, and of codebooks in rows as MusicGen has them."""


def calls(model: torch.nn.Module) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield one call for each class of table that can grow."""
    growing = {type(m).__name__: m for m in model.modules() if any(hasattr(m, n) for n in _GROWS)}
    for name, module in growing.items():
        yield f"{name}(…) of more positions than its table has", partial(_longer, module)


def _longer(module: Any) -> str:
    """Return whether a longer row begins as a short one does."""
    table = next(filter(torch.is_tensor, (getattr(module, name, None) for name in _TABLES)), None)
    if table is None:
        raise NoMeaning("it has no table")
    shape, short = _short(module)
    # the table of the model stays as it is
    longer = copy.deepcopy(module)(torch.full((*shape, len(table) + 1), _ID))
    rows = (value.reshape(-1, value.shape[-1]) for value in (short, longer))
    first, begins = (of[:_SHORT] for of in rows)
    distance = (first.double() - begins.double()).abs().max()
    return f"begins as that of fewer positions: {bool(distance <= _NEAR)}"


def _short(module: Any) -> tuple[tuple[int, ...], torch.Tensor]:
    """Return the shape of ids without their length, and what a short row gives."""
    for rank in _RANKS:
        shape = (1,) * (rank - 1)
        try:
            return shape, module(torch.full((*shape, _SHORT), _ID))
        except Exception:  # noqa: BLE001, S112  a table may take ids of another rank, or more than ids
            continue
    raise NoMeaning("it takes more than ids")

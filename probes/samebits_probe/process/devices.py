"""Devices of this machine, as far as the torch of this stack can use them.

Only the process of a cell asks: the question starts CUDA, after which a process cannot fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

_ELSEWHERE = (
    ": run these cells on a machine that has it (--shard, --on, --store), or leave them out, such as "
    "with --devices cpu"
)


class Inventory(NamedTuple):
    """What there is of one kind of device."""

    built: bool
    """True if this torch has code for the kind."""
    available: int = 0
    """How many devices torch can use."""


class DeviceMissing(Exception):  # noqa: N818  it is about the machine, and no error of a model
    """There is no such device on this machine, or its torch cannot use it; the message has the reason."""

    def __init__(self, reason: str, advice: str = _ELSEWHERE) -> None:
        super().__init__(reason + advice)


def inventory(kind: str) -> Inventory:
    """Return what there is of a kind of device, such as ``cuda``."""
    module: Any = getattr(torch, kind, None)
    if kind == "cpu":
        return Inventory(built=True, available=1)
    if module is None or (kind == "cuda" and not torch.backends.cuda.is_built()):
        return Inventory(built=False)
    # torch.mps.is_available is younger than torch.backends.mps.is_available
    answers = module.is_available if kind != "mps" else torch.backends.mps.is_available
    return Inventory(built=True, available=int(module.device_count()) if answers() else 0)


def require(device: str, look: Callable[[str], Inventory] = inventory) -> None:
    """Raise DeviceMissing, with the reason, if a device cannot be used here.

    ``device`` is a name of matrix.yaml, such as ``cuda`` or ``cuda:1``.
    """
    kind, _, index = device.partition(":")
    there = look(kind)
    if not there.built:
        msg = f"torch {torch.__version__} of this environment has no code for {kind}"
        raise DeviceMissing(msg)
    if not there.available:
        msg = f"this machine has no {kind} device that torch {torch.__version__} can use"
        raise DeviceMissing(msg)
    if int(index or 0) >= there.available:
        msg = f"there is no {device}: this machine has {there.available} {kind} device(s), counted from 0"
        raise DeviceMissing(msg)

"""Devices of this machine, as far as the torch of this stack can use them.

Only the process of a cell asks: the question starts CUDA, after which a process cannot fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from samebits_probe.process import device_forks

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


class DeviceLost(Exception):  # noqa: N818  it ends the process, as a crash does
    """A kernel ended the context of a device: this process can compute nothing more on it."""


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
    devices = look(kind)
    if not devices.built:
        raise DeviceMissing(f"torch {torch.__version__} of this environment has no code for {kind}")
    if not devices.available:
        raise DeviceMissing(
            f"this machine has no {kind} device that torch {torch.__version__} can use"
        )
    if device_forks.are_lost():
        raise DeviceMissing(
            f"the process of this environment called a driver before it forked, so {kind} is lost in all jobs. "
            "Usually a package does that as it is imported",
            ": please report it with the packages of the environment",
        )
    if int(index or 0) >= devices.available:
        raise DeviceMissing(
            f"there is no {device}: this machine has {devices.available} {kind} device(s), counted from 0"
        )


def require_alive(device: str) -> None:
    """Raise DeviceLost if a kernel has failed on the device; wait for all that were started.

    Such an error is reported by a later call, and by each call after it (CUDA runtime API, "Error handling":
    a corrupted context must be ended with its process).
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return
    try:
        getattr(torch, kind).synchronize()
    except RuntimeError as error:
        raise DeviceLost(str(error).partition("\n")[0]) from error

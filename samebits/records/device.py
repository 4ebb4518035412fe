"""What exists only on a GPU: the forwards of a cell in ways that its variant does not choose."""

from __future__ import annotations

from typing import Literal

from samebits.records.distance import Distance
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

DeviceProbeName = Literal[
    "flash_attention_2",
    "flash_attention_3",
    "sdpa by its flash kernel",
    "experts by grouped_mm",
    "TF32 on",
    "TF32 off",
]
"""The probes, in the order in which they run; ``PROBES`` in probes/samebits_probe/cell/on_device.py."""


class DeviceProbe(Record):
    """One prompt, run in one of these ways, compared with the cell's own way."""

    name: DeviceProbeName
    prompt: str
    skipped: str = ""
    """Why it was not run: a package, a precision or a capability of the chip is missing, or it raised."""
    repeats: bool | None = None
    """Whether a second forward gave the same bytes."""
    logits: TensorRef | None = None
    distance: Distance | None = None
    """Distance from the logits of the cell's own way; None if the shapes differ."""

"""Signal ``outputs``: every tensor that a forward returns besides the logits."""

from __future__ import annotations

from functools import partial

from samebits.compare.named import observations
from samebits.compare.outputs import NAME, outputs
from samebits.compare.unit import SignalUnit

SIGNAL = SignalUnit(
    NAME, 62, outputs, partial(observations, NAME), frozenset({NAME, "inputs", "forward"})
)

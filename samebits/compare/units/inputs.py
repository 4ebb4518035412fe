"""Signal ``inputs``: the tensors that a forward receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import inputs
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield every tensor that was fed."""
    for prompt, forward in (capture.signals.forward or {}).items():
        for key, ref in forward.inputs.items():
            yield Observation(ref.hash, "inputs", Subject(prompt=prompt, tensor=key))


SIGNAL = SignalUnit("inputs", 10, inputs, observations, frozenset({"inputs", "forward"}))

"""Signal ``weights``: every parameter and persistent buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.unit import Observation, SignalUnit
from samebits.compare.weights import weights
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield every stored tensor of the model."""
    if capture.signals.weights is not None:
        for name, weight in capture.signals.weights.tensors.items():
            yield Observation(weight.ref.hash, "weights", Subject(tensor=name))


SIGNAL = SignalUnit("weights", 20, weights, observations, frozenset({"weights"}))

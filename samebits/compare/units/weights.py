"""Signal ``weights``: every parameter and persistent buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.unit import Observation, SignalUnit
from samebits.compare.weights import weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[tuple[str, Observation]]:
    """Yield every stored tensor of the model."""
    if capture.signals.weights is not None:
        for name, weight in capture.signals.weights.tensors.items():
            yield f"weights {name}", Observation(weight.ref.hash, "weights")


SIGNAL = SignalUnit("weights", 20, weights, observations, frozenset({"weights"}))

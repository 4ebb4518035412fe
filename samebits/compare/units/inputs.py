"""Signal ``inputs``: the tensors that a forward receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import inputs
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[tuple[str, Observation]]:
    """Yield every tensor that was fed."""
    for prompt, forward in (capture.signals.forward or {}).items():
        for key, ref in forward.inputs.items():
            yield f"inputs {prompt} · {key}", Observation(ref.hash, "inputs", prompt)


SIGNAL = SignalUnit("inputs", 10, inputs, observations, frozenset({"inputs", "forward"}))

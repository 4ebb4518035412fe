"""Signal ``hidden_states``: the output of every layer at every position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import hidden_states
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[tuple[str, Observation]]:
    """Yield the output of every layer."""
    for prompt, forward in (capture.signals.forward or {}).items():
        for index, layer in enumerate(forward.hidden_states):
            padded = forward if layer.padded else None
            observation = Observation(layer.ref.hash, "hidden_states", prompt, layer.ref, padded)
            yield f"hidden_states {prompt} · layer {index} ({layer.name})", observation


SIGNAL = SignalUnit(
    "hidden_states",
    50,
    hidden_states,
    observations,
    frozenset({"hidden_states", "inputs", "forward"}),
)

"""Signal ``hidden_states``: the output of every layer at every position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import hidden_states
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield the output of every layer."""
    for prompt, forward in (capture.signals.forward or {}).items():
        for index, layer in enumerate(forward.hidden_states):
            padded = forward if layer.padded else None
            subject = Subject(prompt=prompt, layer=index, tensor=layer.name)
            yield Observation(layer.ref.hash, "hidden_states", subject, layer.ref, padded)


SIGNAL = SignalUnit(
    "hidden_states",
    50,
    hidden_states,
    observations,
    frozenset({"hidden_states", "inputs", "forward"}),
)

"""Signal ``outputs``: every tensor that a forward returns besides the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import has_padded_axis
from samebits.compare.outputs import NAME, named, outputs
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield every output of every prompt."""
    forwards = capture.signals.forward or {}
    for prompt, refs in named(capture).items():
        forward = forwards.get(prompt)
        for name, ref in refs.items():
            padded = forward if forward is not None and has_padded_axis(forward, ref) else None
            yield Observation(ref.hash, NAME, Subject(prompt=prompt, tensor=name), ref, padded)


SIGNAL = SignalUnit(NAME, 62, outputs, observations, frozenset({NAME, "inputs", "forward"}))

"""Signal ``logits``: the logits of a forward at every position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import logits
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield the logits of every prompt."""
    for prompt, forward in (capture.signals.forward or {}).items():
        if forward.logits is not None:
            ref, padded = forward.logits, forward if forward.logits_padded else None
            yield Observation(ref.hash, "logits", Subject(prompt=prompt), ref, padded)


SIGNAL = SignalUnit("logits", 60, logits, observations, frozenset({"logits", "inputs", "forward"}))

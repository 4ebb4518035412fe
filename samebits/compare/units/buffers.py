"""Signal ``buffers``: every non-persistent buffer after the load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.buffers import buffers
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield every buffer."""
    for name, buffer in (capture.signals.buffers or {}).items():
        yield Observation(buffer.ref.hash, "buffers", Subject(tensor=name))


SIGNAL = SignalUnit("buffers", 30, buffers, observations, frozenset({"buffers"}))

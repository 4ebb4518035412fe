"""Signal ``inv_freq``: rotary frequencies and the scaling of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.buffers import inv_freq
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield every table of frequencies, with its scaling."""
    for name, table in (capture.signals.inv_freq or {}).items():
        identity = (table.ref.hash, repr(table.attention_scaling))
        yield Observation(identity, "inv_freq", Subject(tensor=name))


SIGNAL = SignalUnit("inv_freq", 40, inv_freq, observations, frozenset({"inv_freq", "buffers"}))

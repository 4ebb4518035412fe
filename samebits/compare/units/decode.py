"""Signal ``decode``: the logits of every greedy step, through the KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import decode
from samebits.compare.phases import row_subject
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield the logits of every decoded row."""
    signals = capture.signals
    for row, greedy in (signals.greedy or {}).items():
        logits = greedy.logits.hash if greedy.logits is not None else None
        subject = row_subject(row, signals.forward or {})
        yield Observation((repr(greedy.top2), logits), "decode", subject)


SIGNAL = SignalUnit("decode", 70, decode, observations, frozenset({"decode", "greedy", "forward"}))

"""Signal ``greedy``: the generated tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import greedy
from samebits.compare.phases import row_subject
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(capture: Capture) -> Iterator[Observation]:
    """Yield the tokens of every decoded row."""
    signals = capture.signals
    for row, facts in (signals.greedy or {}).items():
        yield Observation(facts.ids, "greedy", row_subject(row, signals.forward or {}))


SIGNAL = SignalUnit("greedy", 80, greedy, observations, frozenset({"decode", "greedy", "forward"}))

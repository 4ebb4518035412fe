"""Signal ``generation``: the tokens of generate() in the ways that people call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.generation import NAME, generation
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(_capture: Capture) -> Iterator[Observation]:
    """Yield nothing: only run a observes it, so the two runs have nothing to agree on."""
    return iter(())


SIGNAL = SignalUnit(NAME, 85, generation, observations, frozenset({NAME}))

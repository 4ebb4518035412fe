"""Signal ``state``: whether the first prompt gives its bytes again after all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.state import NAME, state
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture


def observations(_capture: Capture) -> Iterator[Observation]:
    """Yield nothing: only run a observes it, so the two runs have nothing to agree on."""
    return iter(())


SIGNAL = SignalUnit(NAME, 90, state, observations, frozenset({NAME}))

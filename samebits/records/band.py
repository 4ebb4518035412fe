"""Bands: neighbouring stacks that compute the same bits of a model.

A release can repair what an earlier one broke, so the bits of a model can change several times.
"""

from __future__ import annotations

from samebits.records.ids import Signal
from samebits.records.record import Record


class Band(Record):
    """One or more neighbouring stacks of a row whose cells have the same bits."""

    stacks: tuple[str, ...]
    """Their ids, oldest first."""
    does: str
    """A letter for each set of bits, ``A`` for the reference's; the verdict if there are none."""
    moved: tuple[Signal, ...] = ()
    """Signals that differ from the previous band, if both bands have bits."""

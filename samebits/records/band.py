"""Neighbouring stacks that do the same with a model: bits are not right or wrong once and for all."""

from __future__ import annotations

from samebits.records.ids import Signal
from samebits.records.record import Record


class Band(Record):
    """One or more stacks, neighbours in a row, in which a cell is the same."""

    stacks: tuple[str, ...]
    """Their ids, oldest first."""
    does: str
    """A letter for each set of bits, ``A`` for the reference's; else the verdict on the cell alone."""
    moved: tuple[Signal, ...] = ()
    """What differs from the band before, where both have bits."""

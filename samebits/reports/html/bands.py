"""Bands of a row as a strip, and where the bits change, with the diff upstream."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

from samebits.reports.sections.releases import upstream

if TYPE_CHECKING:
    from samebits.records.report import Report, Row

_SHADES = 6
"""Colours of letters; the letter itself stands in the strip, too."""


class Piece(NamedTuple):
    """One band as a part of a strip."""

    stacks: tuple[str, ...]
    word: str
    """The letter of its bits, or the verdict."""
    shade: str
    """Class of its colour."""
    moved: tuple[str, ...]
    """Signals that differ from the band before it."""
    before: str
    """Last stack of the band before it; '' for the first."""
    upstream: str
    """Link to what changed in transformers since that stack; '' if a release is not known."""

    @property
    def span(self) -> str:
        """The stacks in words."""
        first, last = self.stacks[0], self.stacks[-1]
        return first if len(self.stacks) == 1 else f"{first} to {last}"


def strip(row: Row, report: Report) -> list[Piece]:
    """Return the bands of a row, the oldest first."""
    pieces: list[Piece] = []
    for band in row.bands:
        before = pieces[-1].stacks[-1] if pieces else ""
        address = upstream(report, before, band.stacks[0])
        pieces.append(Piece(band.stacks, band.does, _shade(band.does), band.moved, before, address))
    return pieces


def _shade(does: str) -> str:
    if does[:1] not in ascii_uppercase or not does[:1]:
        return "band-none"
    return f"band-{ascii_uppercase.index(does[0]) % _SHADES}"

"""Bands of rows as strips, and where the bits change, with the diff upstream."""

from __future__ import annotations

from string import ascii_uppercase
from typing import NamedTuple

from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.sections.releases import upstream
from samebits.text.lists import grouped

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


class Strip(NamedTuple):
    """Rows whose bits move in the same releases, under one strip."""

    rows: tuple[Row, ...]
    pieces: tuple[Piece, ...]


def strips(report: Report) -> list[Strip]:
    """Return the strips of the rows that move, each once; those that move most often first."""
    groups = grouped(filter(moves, report.rows), lambda row: row.bands)
    made = [Strip(tuple(rows), tuple(strip(rows[0], report))) for rows in groups.values()]
    return sorted(made, key=lambda each: (-len(each.pieces), -len(each.rows)))


def moves(row: Row) -> bool:
    """Return True if the bits of a row are not the same in all releases that know it."""
    return len({band.does for band in row.bands} - {Verdict.ABSENT.value}) > 1


def _shade(does: str) -> str:
    if does[:1] not in ascii_uppercase or not does[:1]:
        return "band-none"
    return f"band-{ascii_uppercase.index(does[0]) % _SHADES}"

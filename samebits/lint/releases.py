"""Releases in which a problem exists, as ranges that code can compare and people can read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

Release = tuple[int, int]
"""Major and minor number."""

NEWEST: Release = (999, 999)
"""Later than every release."""

_TEXT = re.compile(r"(\d{1,3})(?:\.(x|\d{1,3}))?(?:\.[\w.]+)?")


class Range(NamedTuple):
    """Releases from ``first`` to ``last``, both included."""

    first: Release
    last: Release

    def __str__(self) -> str:
        """Return ``5.0 and later``, ``4.48 to 4.55`` or ``5.9``."""
        if self.last == NEWEST:
            return f"{release_text(self.first)} and later"
        if self.first == self.last:
            return release_text(self.first)
        return f"{release_text(self.first)} to {release_text(self.last)}"


class Releases(NamedTuple):
    """The releases in which a problem exists."""

    ranges: tuple[Range, ...]
    """In order, without overlap."""
    note: str = ""
    """What the ranges do not say."""

    def __str__(self) -> str:
        """Return the ranges and the note as a phrase."""
        if not self.ranges:
            return self.note
        *rest, last = map(str, self.ranges)
        phrase = f"{', '.join(rest)}, and {last}" if rest else last
        return f"{phrase}; {self.note}" if self.note else phrase

    def within(self, scope: Range) -> Releases:
        """Return the releases of the scope among these."""
        cut = (Range(max(r.first, scope.first), min(r.last, scope.last)) for r in self.ranges)
        return self._replace(ranges=tuple(r for r in cut if r.first <= r.last))

    def meet(self, scope: Range) -> bool:
        """Return True if the problem exists in a release of the scope."""
        return any(r.first <= scope.last and scope.first <= r.last for r in self.ranges)


def since(first: str, note: str = "") -> Releases:
    """Return a release and all later ones."""
    return Releases((Range(_number(first), NEWEST),), note)


def between(first: str, last: str, note: str = "") -> Releases:
    """Return the releases from one to another, both included."""
    return Releases((Range(_number(first), _number(last)),), note)


def union(*parts: Releases, note: str = "") -> Releases:
    """Return the releases of all parts, which are in order and do not overlap."""
    return Releases(tuple(r for part in parts for r in part.ranges), note)


def joined(*parts: Releases) -> Releases:
    """Return the releases of all parts, which are in order; those that follow each other are one range."""
    ranges: list[Range] = []
    for part in (r for p in parts for r in p.ranges):
        if ranges and _follows(ranges[-1].last, part.first):
            ranges.append(Range(ranges.pop().first, part.last))
        else:
            ranges.append(part)
    return Releases(tuple(ranges))


def _follows(last: Release, first: Release) -> bool:
    """Return True if no release lies between two; 4.57 is the last one of 4.x."""
    return first == (last[0], last[1] + 1) or (last, first) == ((4, 57), (5, 0))


def runs(marks: Iterable[tuple[str, bool]]) -> Releases:
    """Return the ranges of neighbours that are marked; the last one is open at its end."""
    ranges: list[Range] = []
    previous = False
    for name, mark in marks:
        if mark:
            first = ranges.pop().first if previous else _number(name)
            ranges.append(Range(first, _number(name)))
        previous = mark
    if previous:
        ranges.append(Range(ranges.pop().first, NEWEST))
    return Releases(tuple(ranges))


def scope(first: str | None, last: str | None) -> Range:
    """Return the range that a user names: ``4.57``, ``4.57.6``, ``5.x`` or ``5``.

    Raises:
        ValueError: a text is no release, or the first is later than the last.

    """
    low = _limit(first, 0) if first else (0, 0)
    high = _limit(last, NEWEST[1]) if last else NEWEST
    if low > high:
        message = f"{first} is later than {last}"
        raise ValueError(message)
    return Range(low, high)


def _limit(text: str, minor: int) -> Release:
    """Return a release; ``minor`` is what ``5`` and ``5.x`` stand for."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is no release of transformers; write 4.57 or 5.x"
        raise ValueError(message)
    return int(match[1]), int(match[2]) if match[2] not in {None, "x"} else minor


def _number(text: str) -> Release:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def release_text(release: Release) -> str:
    """Return ``4.57``, or ``5.x`` for the last release of a major one."""
    return f"{release[0]}.{'x' if release[1] == NEWEST[1] else release[1]}"

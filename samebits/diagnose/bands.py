"""Where along its stacks does a row begin to compute other bits, and where the same again?"""

from __future__ import annotations

import re
from itertools import groupby
from operator import itemgetter
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.signals import compare
from samebits.records.band import Band
from samebits.records.ids import EXPLANATORY, Signal, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samebits.compare.signals import TensorSource
    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId

_AS_REFERENCE = frozenset({Verdict.REFERENCE, Verdict.IDENTICAL})
_DIFFERENT = frozenset({Verdict.DIFFERS, Verdict.ROUNDING, Verdict.DIVERGED})
"""Verdicts on a difference; a cell with any other one has no bits to be compared."""


def bands(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    values: TensorSource,
) -> tuple[Band, ...]:
    """Return the bands of one row, in the order of its stacks.

    Cells that differ from the reference are compared with each other, too: two of them may be the
    same, and what differs between neighbours is what moved there.
    """
    kinds = _Kinds(runs, values)
    told = [(kinds.of(result), result) for result in results]
    found: list[Band] = []
    last: CellResult | None = None
    for kind, group in groupby(told, itemgetter(0)):
        cells = [result for _, result in group]
        moved = kinds.moved(last, cells[0]) if last else ()
        stacks = tuple(result.cell.stack for result in cells)
        found.append(Band(stacks=stacks, does=kind.does, moved=moved))
        last = cells[-1]
    return tuple(found)


_VERSION = re.compile(r"\b\d+(?:\.\d+)+\S*")
"""What two releases that fail alike say otherwise."""


class _Kind(NamedTuple):
    does: str
    why: str = ""
    """What tells two failures apart."""


class _Kinds:
    """The kinds of cells that a row has, by example."""

    def __init__(self, runs: Mapping[CellId, tuple[Capture, ...]], values: TensorSource) -> None:
        self._runs = runs
        self._values = values
        self._examples: list[CellResult] = []
        """Of each set of bits but the reference's."""

    def of(self, result: CellResult) -> _Kind:
        """Return the kind of a cell."""
        if _standing(result) in _AS_REFERENCE:
            return _Kind(_letter(0))
        if result.judged in (Verdict.ABSENT, Verdict.NOT_FINISHED):
            return _Kind(result.judged.value)
        if result.judged not in _DIFFERENT:
            return _Kind(result.judged.value, _VERSION.sub("", result.headline))
        for number, example in enumerate(self._examples, start=1):
            if not self._differing(example, result):
                return _Kind(_letter(number))
        self._examples.append(result)
        return _Kind(_letter(len(self._examples)))

    def moved(self, one: CellResult, other: CellResult) -> tuple[Signal, ...]:
        """Return the signals that keep two cells from being the same; none if one has no bits."""
        if not {_standing(one), _standing(other)} <= _AS_REFERENCE | _DIFFERENT:
            return ()
        return self._differing(one, other)

    def _differing(self, one: CellResult, other: CellResult) -> tuple[Signal, ...]:
        sides = self._runs[one.cell][0], self._runs[other.cell][0]
        return tuple(
            told.signal
            for told in compare(*sides, self._values)
            if told.signal not in EXPLANATORY and not (told.outcome == "identical" or told.excused)
        )


def _standing(result: CellResult) -> Verdict:
    """Return the verdict of a cell; a reference is one whatever it raises."""
    return Verdict.REFERENCE if result.rest is Verdict.REFERENCE else result.judged


def _letter(number: int) -> str:
    """Return A to Z for the first numbers, then A1 to Z1."""
    turn, place = divmod(number, len(ascii_uppercase))
    return f"{ascii_uppercase[place]}{turn or ''}"

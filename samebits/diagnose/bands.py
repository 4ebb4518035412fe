"""Bands of stacks: consecutive stacks of a row in which the model computes the same bits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from string import ascii_uppercase
from typing import NamedTuple

from samebits.compare.signals import TensorSource, compare
from samebits.records.band import Band
from samebits.records.capture import Capture
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId, Signal, Verdict

AS_REFERENCE = frozenset({Verdict.REFERENCE, Verdict.IDENTICAL})
_DIFFERENT = frozenset({Verdict.UNDECIDED, Verdict.ROUNDING, Verdict.DIVERGED})
"""Verdicts on a difference. A cell with any other verdict has no bits to compare."""


def bands(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    values: TensorSource,
) -> tuple[Band, ...]:
    """Return the bands of one row, in the order of its stacks.

    Cells that differ from the reference are also compared with each other: two of them may be the
    same, and the signals that differ between neighbours are those that moved.
    """
    kinds = _Kinds(runs, values)
    with_kinds = [(kinds.kind_of(result), result) for result in results]
    row_bands: list[Band] = []
    last: CellResult | None = None
    for kind, group in groupby(with_kinds, itemgetter(0)):
        cells = [result for _, result in group]
        moved = kinds.moved_signals(last, cells[0]) if last else ()
        stacks = tuple(result.cell.stack for result in cells)
        row_bands.append(Band(stacks=stacks, does=kind.does, moved=moved))
        last = cells[-1]
    return tuple(row_bands)


def bands_in_words(results: Sequence[CellResult]) -> tuple[Band, ...]:
    """Return the bands of a row without bits to compare again: cells of a band say the same of their differences."""
    letters = {"": _letter(0)}

    def does(result: CellResult) -> str:
        if not has_bits(result):
            return result.judged.value
        statement = "" if verdict_of(result) in AS_REFERENCE else result.headline
        return letters.setdefault(statement, _letter(len(letters)))

    return tuple(
        Band(stacks=tuple(result.cell.stack for result in cells), does=shown)
        for shown, cells in groupby(results, does)
    )


_VERSION = re.compile(r"\b\d+(?:\.\d+)+\S*")
"""Version numbers, which differ in the messages of releases that fail in the same way."""


class _Kind(NamedTuple):
    does: str
    detail: str = ""
    """Distinguishes two failures."""


class _Kinds:
    """The kinds of cells that a row has, each with an example."""

    def __init__(self, runs: Mapping[CellId, tuple[Capture, ...]], values: TensorSource) -> None:
        self._runs = runs
        self._values = values
        self._examples: list[CellResult] = []
        """The first cell with each set of bits other than the reference's."""

    def kind_of(self, result: CellResult) -> _Kind:
        """Return the kind of a cell."""
        if verdict_of(result) in AS_REFERENCE:
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

    def moved_signals(self, before: CellResult, after: CellResult) -> tuple[Signal, ...]:
        """Return the signals that differ between two cells; none if a cell has no bits."""
        if not (has_bits(before) and has_bits(after)):
            return ()
        return self._differing(before, after)

    def _differing(self, before: CellResult, after: CellResult) -> tuple[Signal, ...]:
        sides = self._runs[before.cell][0], self._runs[after.cell][0]
        return tuple(
            signal.signal
            for signal in compare(*sides, self._values)
            if not (signal.outcome == "identical" or signal.excused)
        )


def has_bits(result: CellResult) -> bool:
    """Return True if a cell has bits to compare."""
    return verdict_of(result) in AS_REFERENCE | _DIFFERENT


def verdict_of(result: CellResult) -> Verdict:
    """Return the verdict of a cell; a failing reference still counts as the reference."""
    return Verdict.REFERENCE if result.rest is Verdict.REFERENCE else result.judged


def _letter(number: int) -> str:
    """Return A to Z for the first numbers, then A1 to Z1."""
    turn, place = divmod(number, len(ascii_uppercase))
    return f"{ascii_uppercase[place]}{turn or ''}"

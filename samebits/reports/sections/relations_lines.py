"""How every relation inside one version stands, stack by stack: lines that several tables share."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args

from samebits.compare.standing import Standing, standing
from samebits.records.relations import RelationName
from samebits.text.markdown import EMPTY, Markdown, fill
from samebits.text.numbers import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.records.relations import Distance, Relation
    from samebits.records.report import Row

RELATIONS: tuple[RelationName, ...] = get_args(RelationName)
"""In the order of their definition, which is that of the tables."""

GRAVITY = (Standing.HOLDS, Standing.SHRINKS, Standing.UNKNOWN, Standing.STAYS)
"""The least telling first."""

INAPPLICABLE = Markdown("\N{EN DASH}")
"""Stands in a table where a relation has no meaning, or a figure cannot be had."""

NOT_TRIED = Markdown("not tried")

T = TypeVar("T")


class Line(NamedTuple):
    """One relation of one row, on every stack."""

    row: Row
    name: RelationName
    cases: Mapping[str, tuple[Relation, ...]]
    """stack -> the shapes that were tried there."""
    reasons: Mapping[str, tuple[str, ...]]
    """stack -> why the relation, or some shape of it, could not be tried there."""

    @property
    def dtype(self) -> str:
        """The dtype of its row."""
        return dtype_of(self.row)

    def worst(self, stack: str) -> Relation | None:
        """Return the most telling of the shapes tried on a stack."""
        cases = self.cases.get(stack, ())
        return max(cases, key=self._gravity) if cases else None

    def stands(self, stack: str) -> Standing | None:
        """Return how the relation stands on a stack; None where it was not tried."""
        worst = self.worst(stack)
        return standing(worst, self.dtype) if worst else None

    def on(self, wanted: Standing) -> list[str]:
        """Return the stacks where it stands just so."""
        return [stack for stack in self.cases if self.stands(stack) == wanted]

    @property
    def holds(self) -> bool:
        """True if it holds bit for bit wherever it was tried."""
        return all(self.stands(stack) == Standing.HOLDS for stack in self.cases)

    def by_design(self) -> bool:
        """Return True if the model means the ways to differ wherever they are broken."""
        broken = [self.worst(stack) for stack in self.on(Standing.STAYS)]
        return bool(broken) and all(case is not None and case.note for case in broken)

    def word(self, stack: str) -> Markdown:
        """Return what a table says of one stack."""
        return word([self], stack)

    def _gravity(self, case: Relation) -> tuple[int, float]:
        return GRAVITY.index(standing(case, self.dtype)), largest(_sizes([case.distance]))


def dtype_of(row: Row) -> str:
    """Return the dtype that the name of the row's variant begins with."""
    return row.variant.partition("-")[0]


def lines(rows: Iterable[Row]) -> list[Line]:
    """Return a line for each relation and row that has anything to say of it, relation by relation."""
    rows = list(rows)
    found = (_line(row, name) for name in RELATIONS for row in rows if row.invariants)
    return [line for line in found if line.cases or line.reasons]


def _line(row: Row, name: RelationName) -> Line:
    cases = {
        stack: tuple(case for case in signal.relations if case.relation == name)
        for stack, signal in row.invariants.items()
    }
    reasons = {
        stack: tuple(left.reason for left in signal.inapplicable if left.relation == name)
        for stack, signal in row.invariants.items()
    }
    return Line(row, name, _filled(cases), _filled(reasons))


def _filled(found: Mapping[str, tuple[T, ...]]) -> dict[str, tuple[T, ...]]:
    return {stack: several for stack, several in found.items() if several}


def word(same: list[Line], stack: str) -> Markdown:
    """Return what a table says of lines that stand alike on a stack: their largest figures."""
    first = same[0]
    stands = first.stands(stack)
    if stands is None:
        return INAPPLICABLE if stack in first.reasons else NOT_TRIED
    worst = [case for line in same if (case := line.worst(stack))]
    if stands == Standing.HOLDS:
        return Markdown("holds")
    figures = _figures(worst)
    if stands == Standing.STAYS:
        return fill("**broken** {}", figures)
    if stands == Standing.SHRINKS:
        return figures
    return fill("differs{}{}", Markdown(" ") if figures else EMPTY, figures)


def _figures(cases: list[Relation]) -> Markdown:
    """Return the largest difference and, in brackets, the largest in float64."""
    own = _sizes(case.distance for case in cases)
    if not any(own):
        return _elsewhere(cases)
    promoted = _sizes(case.promoted for case in cases)
    bracket = size(largest(promoted)) if promoted else INAPPLICABLE
    return fill("{} ({})", size(largest(own)), bracket)


def _elsewhere(cases: list[Relation]) -> Markdown:
    """Return the figure of what differs where the logits agree or are not compared.

    It is that of the layers, or the largest margin that was not enough to keep a greedy token.
    """
    layers = _sizes(layer.distance for case in cases for layer in case.layers)
    if any(layers):
        promoted = _sizes(layer.promoted for case in cases for layer in case.layers)
        bracket = size(largest(promoted)) if promoted else INAPPLICABLE
        return fill("in the layers {} ({})", size(largest(layers)), bracket)
    margins = [case.split.margin for case in cases if case.split and case.split.margin is not None]
    return fill("by a margin of {}", size(largest(margins))) if margins else EMPTY


def _sizes(distances: Iterable[Distance | None]) -> list[float]:
    return [distance.max_abs for distance in distances if distance]


def largest(values: Iterable[float]) -> float:
    """Return the largest, which NaN is more than; 0 of none."""
    return max(values, key=lambda value: math.inf if math.isnan(value) else value, default=0.0)


def size(value: float, digits: int = 2) -> str:
    """Return a distance; a probe gives the largest number for what is no distance."""
    return "not finite" if value >= sys.float_info.max else number(value, digits)


def alike(found: Mapping[str, T]) -> list[tuple[list[str], T]]:
    """Return equal values once, each with all its keys in front."""
    groups: dict[str, list[str]] = {}
    for key, value in found.items():
        # The repr, because NaN is equal to NaN in it.
        groups.setdefault(repr(value), []).append(key)
    return [(keys, found[keys[0]]) for keys in groups.values()]

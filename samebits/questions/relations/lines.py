"""Lines of several tables: the standing of each relation inside one version, stack by stack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar, get_args

from samebits.compare.phases import DECODED
from samebits.questions.relations.judge import Standing, judge_relation
from samebits.questions.relations.records import LEFT_TO_CLASSES, Relation, RelationName, signals_of
from samebits.records.distance import Distance
from samebits.records.ids import Signal
from samebits.records.report import Row
from samebits.text.markdown import EMPTY, Markdown, fill
from samebits.text.numbers import size

RELATIONS: tuple[RelationName, ...] = get_args(RelationName)
"""All relations, in the order of their definition, which is that of the tables."""

SEVERITY = (Standing.HOLDS, Standing.ROUNDING, Standing.UNDECIDED, Standing.BROKEN)
"""Standings, the least severe first."""

INAPPLICABLE = Markdown("\N{EN DASH}")
"""Shown where a relation has no meaning, or a figure is not available."""

NOT_TRIED = Markdown("not tried")

T = TypeVar("T")


class Line(NamedTuple):
    """One relation of one row, on every stack."""

    row: Row
    name: RelationName
    cases: Mapping[str, tuple[Relation, ...]]
    """Stack -> the shapes that were tried on it."""
    reasons: Mapping[str, tuple[str, ...]]
    """Stack -> why the relation, or some shape of it, could not be tried on it."""

    @property
    def dtype(self) -> str:
        """The dtype of its row."""
        return dtype_of(self.row)

    def worst(self, stack: str) -> Relation | None:
        """Return the most severe case of the shapes tried on a stack."""
        cases = self.cases.get(stack, ())
        return max(cases, key=self._severity) if cases else None

    def standing_on(self, stack: str) -> Standing | None:
        """Return the standing of the relation on a stack; None where it was not tried."""
        worst = self.worst(stack)
        return judge_relation(worst, self.dtype) if worst else None

    def stacks_with(self, target: Standing) -> list[str]:
        """Return the stacks where the relation has exactly this standing."""
        return [stack for stack in self.cases if self.standing_on(stack) == target]

    @property
    def holds(self) -> bool:
        """True if the relation holds bit for bit on every stack where it was tried."""
        return all(self.standing_on(stack) == Standing.HOLDS for stack in self.cases)

    def by_design(self) -> bool:
        """Return True if it is broken by the model's design on every stack that breaks it.

        Where another stack keeps it, padding is not left to a model's design.
        """
        if self.name in LEFT_TO_CLASSES and any(
            self.standing_on(stack) in _HOLDING for stack in self.cases
        ):
            return False
        broken = [self.worst(stack) for stack in self.stacks_with(Standing.BROKEN)]
        return bool(broken) and all(case is not None and case.note for case in broken)

    def word(self, stack: str) -> Markdown:
        """Return the text of one stack in a table."""
        return word([self], stack)

    def _severity(self, case: Relation) -> tuple[int, float]:
        return SEVERITY.index(judge_relation(case, self.dtype)), largest(_sizes([case.distance]))


_ABOUT: dict[RelationName, frozenset[Signal]] = {
    "full forward = prefill + decode": DECODED,
    "multi-token verify = single-token decode": DECODED,
    "cache contents": DECODED,
    "greedy without cache = with cache": DECODED,
    "greedy by hand = generate()": DECODED,
    "SDPA = eager attention": DECODED | {"hidden_states", "logits", "outputs"},
}
"""Relation -> the signals of which a side is wrong that breaks it."""
_WITH_THE_FORWARD: tuple[RelationName, ...] = (
    "full forward = prefill + decode",
    "greedy without cache = with cache",
)
_AMONG_CACHED: tuple[RelationName, ...] = (
    "multi-token verify = single-token decode",
    "cache contents",
    "greedy by hand = generate()",
)
"""Relations of two ways that both decode with a cache: these may agree and be wrong alike."""
_ROUNDING = 2.0**-16
"""Rounding between the float64 values of two releases, as a part of the largest one: tables may be computed again."""
_HOLDING = (Standing.HOLDS, Standing.ROUNDING)


def contradicts(row: Row, stack: str, other: str, signals: frozenset[Signal]) -> list[str]:
    """Return the relations that a stack breaks and another one keeps, of those about what differs.

    Without another stack, return those that the stack breaks. One that a model breaks by its design is none of them.
    Where decoding in the other stack is not equal to its full forward, nothing that agrees with it there is kept.
    """
    about = [
        line
        for line in lines([row])
        if signals & _ABOUT.get(line.name, frozenset()) and not line.by_design()
    ]
    decodes_wrongly = other and any(
        line.standing_on(other) == Standing.BROKEN
        for line in about
        if line.name in _WITH_THE_FORWARD
    )
    return [
        line.name
        for line in about
        if line.standing_on(stack) == Standing.BROKEN
        and not (decodes_wrongly and line.name in _AMONG_CACHED)
        and (
            not other
            or (line.standing_on(other) in _HOLDING and _shows_the_side(line, stack, other))
        )
    ]


def _shows_the_side(line: Line, stack: str, other: str) -> bool:
    """Return True unless a relation keeps values of both ways, and they do not say which one is wrong.

    Of eager attention and SDPA either may be wrong. SDPA is, where eager attention alone gives what the other stack gives.
    """
    broken, holding = line.worst(stack), line.worst(other)
    if broken is None or broken.values is None:
        return True
    if holding is None or holding.values is None or holding.case != broken.case:
        return False
    own, second = broken.values
    right = holding.values[0]
    return _are_alike(second, right) and not _are_alike(own, right)


def _are_alike(values: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Return True for numbers that differ by rounding at most."""
    largest = max(map(abs, others), default=0.0)
    return len(values) == len(others) and all(
        abs(a - b) <= _ROUNDING * largest for a, b in zip(values, others, strict=True)
    )


def breaks(row: Row, stack: str) -> list[str]:
    """Return the relations that a stack breaks, but for those that a model breaks by its design."""
    return [
        line.name
        for line in lines([row])
        if line.standing_on(stack) == Standing.BROKEN and not line.by_design()
    ]


def dtype_of(row: Row) -> str:
    """Return the dtype that the name of the row's variant begins with."""
    return row.variant.partition("-")[0]


def lines(rows: Iterable[Row]) -> list[Line]:
    """Return a line for each relation and row with cases or reasons, relation by relation.

    One that each release breaks, as its class may do by design, says nothing and is left out.
    """
    rows = list(rows)
    all_lines = (_line(row, name) for name in RELATIONS for row in rows if signals_of(row))
    return [
        line
        for line in all_lines
        if (line.cases or line.reasons) and not (line.name in LEFT_TO_CLASSES and line.by_design())
    ]


def _line(row: Row, name: RelationName) -> Line:
    cases = {
        stack: tuple(case for case in signal.relations if case.relation == name)
        for stack, signal in signals_of(row).items()
    }
    reasons = {
        stack: tuple(skip.reason for skip in signal.inapplicable if skip.relation == name)
        for stack, signal in signals_of(row).items()
    }
    return Line(row, name, _without_empty(cases), _without_empty(reasons))


def _without_empty(by_stack: Mapping[str, tuple[T, ...]]) -> dict[str, tuple[T, ...]]:
    return {stack: values for stack, values in by_stack.items() if values}


def word(group: list[Line], stack: str) -> Markdown:
    """Return the text of one stack for lines with the same standing: their largest figures."""
    first = group[0]
    result = first.standing_on(stack)
    if result is None:
        return INAPPLICABLE if first.reasons.get(stack) else NOT_TRIED
    worst_cases = [case for line in group if (case := line.worst(stack))]
    if result == Standing.HOLDS:
        return Markdown("holds")
    figures = _figures(worst_cases)
    if result == Standing.BROKEN:
        return fill("**broken** {}", figures)
    if result == Standing.ROUNDING:
        return figures
    return fill("differs{}{}", Markdown(" ") if figures else EMPTY, figures)


def _figures(cases: list[Relation]) -> Markdown:
    """Return the largest difference and, in brackets, the largest in float64."""
    native = _sizes(case.distance for case in cases)
    if not any(native):
        return _other_figures(cases)
    promoted = _sizes(case.promoted for case in cases)
    bracket = size(largest(promoted)) if promoted else INAPPLICABLE
    return fill("{} ({})", size(largest(native)), bracket)


def _other_figures(cases: list[Relation]) -> Markdown:
    """Return the figure of a difference where the logits agree or are not compared.

    It is the difference of the layers, or the largest margin at which greedy tokens still differ.
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
    """Return the largest value; NaN counts as larger than any number; 0 without values."""
    return max(values, key=lambda value: math.inf if math.isnan(value) else value, default=0.0)

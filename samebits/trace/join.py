"""Two traces joined by content: what exists on one side and not on the other, and where that starts.

Neither order nor names are compared. A value is *known* if its content exists on the other side, or
if it holds elements of known values and nothing else. Going back from the first layer output that
differs through what is not known ends at operations whose inputs are all known: those made the
difference. What only says where (masks, positions, indices) never ends the way: two releases spell
it differently, and blame.py compares what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.trace.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from samebits.records.trace import Trace


class Suspect(NamedTuple):
    """A place that parts by itself: an operation, or a value that nothing computed."""

    op: int
    """The operation, or the first one that takes the value."""
    source: int | None = None
    """The value that does not exist on the other side."""


class Joined(NamedTuple):
    """Both traces with what parts by itself on either side, first things first."""

    reference: View
    candidate: View
    sink: str
    place: int
    """Of the sink among the outputs of the candidate's layers, in order of execution."""


def join(reference: Trace, candidate: Trace, same_weights: Collection[str] = ()) -> Joined | None:
    """Return where two traces part on the way to the first output that differs; None if none does.

    ``same_weights`` names tensors that hold the same numbers in another layout.
    """
    one, other = Graph(reference), Graph(candidate)
    for place, (name, left, right) in enumerate(_paired(one, other)):
        if one.value(left).hash != other.value(right).hash:
            views = View(one, other, left, same_weights), View(other, one, right, same_weights)
            return Joined(*views, name, place)
    return None


def _paired(one: Graph, other: Graph) -> Iterator[tuple[str, int, int]]:
    """Yield the places that both sides have: by position if they are as many, else by name."""
    left, right = one.trace.marks, other.trace.marks
    if len(left) == len(right):
        yield from ((name, a, b) for (_, a), (name, b) in zip(left, right, strict=True))
        return
    by_name = dict(left)
    yield from ((name, by_name[name], b) for name, b in right if name in by_name)


class View:
    """One side, seen from the other: which of its values are known there."""

    def __init__(
        self, graph: Graph, there: Graph, sink: int, same_weights: Collection[str] = ()
    ) -> None:
        self.graph = graph
        self.there = there
        self._same_weights = same_weights
        self._roots: dict[int, frozenset[str] | None] = {}
        self.slice = self._backwards(sink)
        self.suspects = sorted(self._find(), key=lambda s: (s.op, s.source is None))

    def exists(self, value: int) -> bool:
        """Return True if the content exists on the other side."""
        return self.graph.value(value).hash in self.there.by_hash

    def roots(self, value: int) -> frozenset[str] | None:
        """Return the known contents that a value is made of; None if it is not known."""
        if value not in self._roots:
            self._roots[value] = None  # a loop through equal contents makes nothing known
            self._roots[value] = self._find_roots(value)
        return self._roots[value]

    def _find_roots(self, value: int) -> frozenset[str] | None:
        graph = self.graph
        if self.exists(value):
            return frozenset({graph.root(value)})
        if (elsewhere := self._in_other_order(value)) is not None:
            return elsewhere
        index = graph.producer(value)
        if index is None:
            name = graph.trace.sources.get(value, "")
            return frozenset({"weights"}) if name in self._same_weights else None
        if not graph.is_layout(index):
            return None
        found = [self.roots(v) for v in graph.op(index).inputs if not graph.is_index(v)]
        if not found or any(roots is None for roots in found):
            return None
        return frozenset().union(*(roots for roots in found if roots))

    def _in_other_order(self, value: int) -> frozenset[str] | None:
        """Return the contents of the other side that hold the same elements, or the same rows."""
        bag = self.graph.value(value).bag
        if bag and bag in self.there.by_bag:
            return frozenset({bag})
        rows = self.graph.rows(value)
        if rows is None:
            return None
        found = {self.there.by_row.get(row) for row in rows if row[2]}
        if not found or None in found:
            return None
        return frozenset(self.there.root(number) for number in found if number is not None)

    def _backwards(self, sink: int) -> set[int]:
        """Return the operations that lead to the sink through values that are not known."""
        found: set[int] = set()
        self.sources: set[int] = set()
        left, seen = [sink], {sink}
        while left:
            value = left.pop()
            if value != sink and (self.exists(value) or self._in_other_order(value)):
                continue
            index = self.graph.producer(value)
            if index is None:
                self.sources.add(value)
                continue
            if index in found:
                continue
            found.add(index)
            more = [v for v in self.graph.op(index).inputs if v not in seen]
            seen.update(more)
            left += more
        return found

    def _find(self) -> Iterator[Suspect]:
        graph = self.graph
        for index in self.slice:
            data = graph.data_inputs(index)
            computes = not graph.is_layout(index) and data
            if computes and self._is_number(index) and all(map(self._is_known, data)):
                yield Suspect(index)
        for value in self.sources:
            if not graph.is_index(value) and not self._is_known(value):
                users = [index for index in graph.users(value) if index in self.slice]
                if users:
                    yield Suspect(min(users), value)

    def _is_number(self, index: int) -> bool:
        """Return True if an operation gives numbers, and not only places."""
        return any(not self.graph.is_index(v) for v in self.graph.op(index).outputs)

    def _is_known(self, value: int) -> bool:
        return self.roots(value) is not None

    def first_made(self, value: int) -> int | None:
        """Return the first operation of a value's making that only this side has; None if none."""
        graph = self.graph
        found: list[int] = []
        left, seen = [value], {value}
        while left:
            index = graph.producer(left.pop())
            if index is None:
                continue
            op = graph.op(index)
            if any(not self.exists(v) for v in op.outputs):
                if all(self.exists(v) for v in op.inputs):
                    found.append(index)
                more = [v for v in op.inputs if v not in seen and not self.exists(v)]
                seen.update(more)
                left += more
        return min(found, default=None)

    def input_roots(self, index: int) -> frozenset[str]:
        """Return the known contents that an operation takes."""
        found = (self.roots(v) or frozenset() for v in self.graph.data_inputs(index))
        return frozenset().union(*found)

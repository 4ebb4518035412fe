"""Two traces joined by content: where the content of one first differs from the other's.

Neither order nor names are compared. A value is *known* if its content exists on the other side, or
if it holds only elements of known values. The search goes back from the first layer output that
differs, through values that are not known. It ends at operations whose inputs are all known: these
made the difference. It never ends at masks, positions or indices. Two releases encode them
differently, and blame.py compares their meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from samebits.records.trace import Trace
from samebits.trace.graph import Graph


class Suspect(NamedTuple):
    """A place where a divergence starts: an operation, or a value that no operation computed."""

    op: int
    """The operation, or the first one that takes the value."""
    source: int | None = None
    """The value that does not exist on the other side."""


class Joined(NamedTuple):
    """Both traces with the suspects of either side, in order of execution."""

    reference: View
    candidate: View
    sink: str
    place: int
    """Index of the sink among the outputs of the candidate's layers, in order of execution."""


def join(reference: Trace, candidate: Trace, same_weights: Collection[str] = ()) -> Joined | None:
    """Return where two traces diverge before the first output that differs; None if none differs.

    ``same_weights`` names tensors that hold the same numbers in another layout.
    """
    reference_graph, candidate_graph = Graph(reference), Graph(candidate)
    for place, (name, reference_value, candidate_value) in enumerate(
        _common_marks(reference_graph, candidate_graph)
    ):
        values = reference_graph.value(reference_value), candidate_graph.value(candidate_value)
        if values[0].hash != values[1].hash:
            views = (
                View(reference_graph, candidate_graph, reference_value, same_weights),
                View(candidate_graph, reference_graph, candidate_value, same_weights),
            )
            _blame_choices(*views)
            return Joined(*views, name, place)
    return None


def _blame_choices(*views: View) -> None:
    """Where one output holds only rows of the other side, suspect what chooses rows by other indices.

    The dots of Grounding DINO have the position of its first token from 5.0.0 to 5.22, so the row of each is known,
    and so is that of all that is computed from it.
    """
    if not any(view.is_reordered for view in views):
        return
    choices = [view.choices() for view in views]
    if all(choices):
        for view, suspects in zip(views, choices, strict=True):
            view.suspects = suspects


def _common_marks(reference: Graph, candidate: Graph) -> Iterator[tuple[str, int, int]]:
    """Yield the marks of both sides: paired by position if the counts agree, else by name."""
    reference_marks, candidate_marks = reference.trace.marks, candidate.trace.marks
    if len(reference_marks) == len(candidate_marks):
        yield from (
            (name, a, b) for (_, a), (name, b) in zip(reference_marks, candidate_marks, strict=True)
        )
        return
    by_name = dict(reference_marks)
    yield from ((name, by_name[name], b) for name, b in candidate_marks if name in by_name)


class View:
    """One side of a pair: which of its values exist on the other side."""

    def __init__(
        self, graph: Graph, counterpart: Graph, sink: int, same_weights: Collection[str] = ()
    ) -> None:
        self.graph = graph
        self.other = counterpart
        self.sink = sink
        self._same_weights = same_weights
        self._roots: dict[int, frozenset[str] | None] = {}
        self.slice = self._backward_slice(sink)
        self.suspects = sorted(self._find_suspects(), key=lambda s: (s.op, s.source is None))

    def exists(self, value: int) -> bool:
        """Return True if the content exists on the other side."""
        return self.graph.value(value).hash in self.other.by_hash

    def roots(self, value: int) -> frozenset[str] | None:
        """Return the known contents that a value consists of; None if it is not known."""
        if value not in self._roots:
            self._roots[value] = None  # a loop through equal contents makes nothing known
            self._roots[value] = self._find_roots(value)
        return self._roots[value]

    def _find_roots(self, value: int) -> frozenset[str] | None:
        graph = self.graph
        if self.exists(value):
            return frozenset({graph.root(value)})
        if (reordered := self._reordered(value)) is not None:
            return reordered
        index = graph.producer(value)
        if index is None:
            name = graph.trace.sources.get(value, "")
            return frozenset({"weights"}) if name in self._same_weights else None
        if not graph.is_layout(index):
            return None
        parents = [self.roots(v) for v in graph.op(index).inputs if not graph.is_index(v)]
        if not parents or any(roots is None for roots in parents):
            return None
        return frozenset().union(*(roots for roots in parents if roots))

    def _reordered(self, value: int) -> frozenset[str] | None:
        """Return the contents of the other side that hold the same elements, or the same rows."""
        bag = self.graph.value(value).bag
        if bag and bag in self.other.by_bag:
            return frozenset({bag})
        rows = self.graph.rows(value)
        if rows is None:
            return None
        numbers = {self.other.by_row.get(row) for row in rows if row[2]}
        if not numbers or None in numbers:
            return None
        return frozenset(self.other.root(number) for number in numbers if number is not None)

    @property
    def is_reordered(self) -> bool:
        """Whether the sink holds the elements or rows of contents of the other side, in other places."""
        return self._reordered(self.sink) is not None

    def choices(self) -> list[Suspect]:
        """Return the operations before the sink that take known numbers by indices that are not known."""
        graph = self.graph
        suspects: list[Suspect] = []
        pending, visited = [self.sink], {self.sink}
        while pending:
            index = graph.producer(pending.pop())
            if index is None:
                continue
            data = graph.data_inputs(index)
            indices = (v for v in graph.op(index).inputs if graph.is_index(v))
            if data and all(map(self.exists, data)) and not all(map(self.exists, indices)):
                suspects.append(Suspect(index))
            new = [v for v in data if v not in visited and not self.exists(v)]
            visited.update(new)
            pending += new
        return sorted(suspects)

    def _backward_slice(self, sink: int) -> set[int]:
        """Return the operations that reach the sink through values that are not known.

        Values on these paths that no operation produced are put into ``sources``.
        """
        operations: set[int] = set()
        self.sources: set[int] = set()
        pending, visited = [sink], {sink}
        while pending:
            value = pending.pop()
            if value != sink and (self.exists(value) or self._reordered(value)):
                continue
            index = self.graph.producer(value)
            if index is None:
                self.sources.add(value)
                continue
            if index in operations:
                continue
            operations.add(index)
            new = [v for v in self.graph.op(index).inputs if v not in visited]
            visited.update(new)
            pending += new
        return operations

    def _find_suspects(self) -> Iterator[Suspect]:
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
        """Return True if an operation produces numbers, and not only masks or indices."""
        return any(not self.graph.is_index(v) for v in self.graph.op(index).outputs)

    def _is_known(self, value: int) -> bool:
        return self.roots(value) is not None

    def first_made(self, value: int) -> int | None:
        """Return the first operation that computes a value and exists only on this side."""
        graph = self.graph
        made: list[int] = []
        pending, visited = [value], {value}
        while pending:
            index = graph.producer(pending.pop())
            if index is None:
                continue
            op = graph.op(index)
            if any(not self.exists(v) for v in op.outputs):
                if all(self.exists(v) for v in op.inputs):
                    made.append(index)
                new = [v for v in op.inputs if v not in visited and not self.exists(v)]
                visited.update(new)
                pending += new
        return min(made, default=None)

    def input_roots(self, index: int) -> frozenset[str]:
        """Return the known contents of an operation's inputs."""
        roots = (self.roots(v) or frozenset() for v in self.graph.data_inputs(index))
        return frozenset().union(*roots)

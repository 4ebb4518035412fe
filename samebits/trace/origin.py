"""Where does a value come from, and do two values hold the same rows?"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.trace.graph import Graph

_FAR = 30
"""Layout operations that are followed back at most."""
_CHOOSING = {"embedding", "index", "index_select", "gather", "_unsafe_index"}


def maker(graph: Graph, value: int) -> str:
    """Return the operation that computed a value, behind what only laid it out; '' for none."""
    for _ in range(_FAR):
        index = graph.producer(value)
        if index is None:
            return graph.trace.sources.get(value, "")
        inputs = graph.op(index).inputs
        if not graph.is_layout(index) or not inputs:
            return place_of(graph, index)
        value = inputs[-1] if graph.base(index) == "write" else inputs[0]
    return ""


def stored_as(graph: Graph, value: int) -> str | None:
    """Return the name of the parameter or buffer that a value is all of; None if it is none."""
    size = prod(graph.value(value).shape)
    for _ in range(_FAR):
        index = graph.producer(value)
        if index is None:
            name = graph.trace.sources.get(value, "constant")
            whole = prod(graph.value(value).shape) == size
            return name if whole and "." in name else None
        inputs = graph.op(index).inputs
        if not graph.is_layout(index) or len(inputs) != 1:
            return None
        value = inputs[0]
    return None


def place_of(graph: Graph, index: int) -> str:
    """Return an operation with the function and the line that called it."""
    functions = graph.functions(index)
    if not functions:
        return graph.name(index)
    file = functions[0].file.rpartition("/")[2]
    return f"{graph.name(index)} in {functions[0].name} ({file}:{graph.op(index).line})"


def long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without its axes of length 1."""
    return tuple(n for n in shape if n != 1)


def choice(graph: Graph, value: int) -> tuple[int, int] | None:
    """Return table and indices of the operation that chose the rows of a value."""
    for _ in range(_FAR):
        index = graph.producer(value)
        if index is None:
            return None
        inputs = graph.op(index).inputs
        if graph.base(index) in _CHOOSING and len(inputs) == 2:
            return inputs[0], inputs[1]
        if not graph.is_layout(index) or not inputs:
            return None
        value = inputs[0]
    return None


def rows_in_place(one: Graph, a: int, two: Graph, b: int) -> bool:
    """Return True if both hold the same rows in one order, repeated as often as it takes."""
    left, right = sorted((one.rows(a) or [], two.rows(b) or []), key=len)
    if not left or len(right) % len(left):
        return False
    pairs = zip(left * (len(right) // len(left)), right, strict=True)
    return all(x == y for x, y in pairs if x[2] and y[2])  # rows of padding are zeros


def share_rows(one: Graph, a: int, two: Graph, b: int) -> bool:
    """Return True if a row that is not all zeros stands in both values."""
    left, right = ({row for row in g.rows(v) or () if row[2]} for g, v in ((one, a), (two, b)))
    return bool(left & right)


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return how much of what two operations take is the same."""
    return len(one & other) / max(1, len(one | other))

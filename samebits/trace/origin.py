"""Origin of a value: the operation, stored tensor or table behind it, and its rows."""

from __future__ import annotations

from math import prod

from samebits.trace.graph import Graph

_MAX_STEPS = 30
"""Layout operations that are followed back."""
_SELECTING = {"embedding", "index", "index_select", "gather", "_unsafe_index"}


def maker(graph: Graph, value: int) -> str:
    """Return the operation or the stored tensor that a value is from, in words; '' for none."""
    index, value = made_by(graph, value)
    return graph.trace.sources.get(value, "") if index is None else place_of(graph, index)


def made_by(graph: Graph, value: int) -> tuple[int | None, int]:
    """Return the operation that computed a value, skipping layout operations, and what it follows from.

    The operation is None for a stored tensor, and after too many steps.
    """
    for _ in range(_MAX_STEPS):
        index = graph.producer(value)
        if index is None:
            return None, value
        inputs = graph.op(index).inputs
        if not graph.is_layout(index) or not inputs:
            return index, value
        value = inputs[-1] if graph.base(index) == "write" else inputs[0]
    return None, -1


def stored_as(graph: Graph, value: int) -> str | None:
    """Return the name of the parameter or buffer that a value is all of; None if it is not one."""
    size = prod(graph.value(value).shape)
    for _ in range(_MAX_STEPS):
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
    """Return the table and the indices of the operation that selected the rows of a value."""
    for _ in range(_MAX_STEPS):
        index = graph.producer(value)
        if index is None:
            return None
        inputs = graph.op(index).inputs
        if graph.base(index) in _SELECTING and len(inputs) == 2:
            return inputs[0], inputs[1]
        if not graph.is_layout(index) or not inputs:
            return None
        value = inputs[0]
    return None


def rows_in_place(
    reference: Graph, reference_value: int, candidate: Graph, candidate_value: int
) -> bool:
    """Return True if both hold the same rows in the same order, apart from repetitions."""
    shorter, longer = sorted(
        (reference.rows(reference_value) or [], candidate.rows(candidate_value) or []), key=len
    )
    if not shorter or len(longer) % len(shorter):
        return False
    pairs = zip(shorter * (len(longer) // len(shorter)), longer, strict=True)
    return all(x == y for x, y in pairs if x[2] and y[2])  # rows of padding are zeros


def share_rows(
    reference: Graph, reference_value: int, candidate: Graph, candidate_value: int
) -> bool:
    """Return True if both values contain a common row that is not all zeros."""
    reference_rows, candidate_rows = (
        {row for row in g.rows(v) or () if row[2]}
        for g, v in ((reference, reference_value), (candidate, candidate_value))
    )
    return bool(reference_rows & candidate_rows)


def overlap(reference: frozenset[str], candidate: frozenset[str]) -> float:
    """Return the share of common contents among the inputs of two operations."""
    return len(reference & candidate) / max(1, len(reference | candidate))

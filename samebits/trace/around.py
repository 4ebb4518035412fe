"""The operations around the first difference: the traces of both sides, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest

from samebits.records.trace import TraceLine, TracePair
from samebits.trace.graph import Graph
from samebits.trace.join import Suspect, View

BEFORE = 8
"""Operations before the first difference."""
AFTER = 8
_MAX_ARGUMENTS = 160


def around(
    reference: View, candidate: View, counterpart: Suspect | None, suspect: Suspect | None
) -> tuple[TracePair, ...]:
    """Return the operations around the first difference in order of execution; () if a side has none.

    Operations with equal outputs stand side by side, and so do those between them.
    """
    if counterpart is None or suspect is None:
        return ()
    left, right = _window(reference.graph, counterpart.op), _window(candidate.graph, suspect.op)
    pairs = _aligned(reference.graph, candidate.graph, left, right)
    return tuple(
        TracePair(
            reference=None if a is None else _line(reference, a),
            candidate=None if b is None else _line(candidate, b),
            starts=a == counterpart.op or b == suspect.op,
        )
        for a, b in pairs
    )


def _window(graph: Graph, index: int) -> range:
    return range(max(0, index - BEFORE), min(len(graph.trace.ops), index + AFTER + 1))


def _aligned(
    reference: Graph, candidate: Graph, left: range, right: range
) -> Iterator[tuple[int | None, int | None]]:
    matcher = SequenceMatcher(
        a=[_outputs(reference, index) for index in left],
        b=[_outputs(candidate, index) for index in right],
        autojunk=False,
    )
    for _, a_start, a_stop, b_start, b_stop in matcher.get_opcodes():
        yield from zip_longest(left[a_start:a_stop], right[b_start:b_stop])


def _outputs(graph: Graph, index: int) -> tuple[str, ...]:
    return tuple(graph.value(number).hash for number in graph.op(index).outputs)


def _line(view: View, index: int) -> TraceLine:
    graph = view.graph
    op = graph.op(index)
    return TraceLine(
        op=graph.name(index),
        arguments=graph.arguments(index)[:_MAX_ARGUMENTS],
        module=graph.module(index),
        outputs=graph.described(op.outputs[:1]),
        shared=all(map(view.exists, op.outputs)),
    )

"""Of which kind is the place where two traces part?"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from samebits.trace.attention import PRODUCTS, is_kernel, other_kernel, seen_keys
from samebits.trace.origin import (
    choice,
    long_axes,
    maker,
    overlap,
    place_of,
    rows_in_place,
    share_rows,
    stored_as,
)

if TYPE_CHECKING:
    from samebits.records.trace import CauseKind
    from samebits.trace.graph import Graph
    from samebits.trace.join import Suspect, View

_ADDING = {"addmm", "baddbmm"}


class Parted(NamedTuple):
    """Both sides, with what is blamed on the candidate's and what the reference has there."""

    there: View
    here: View
    suspect: Suspect | None
    counterpart: Suspect | None


def kind_of(pair: Parted, mask: list[str] | None) -> tuple[CauseKind, list[str]]:
    """Return the kind and its evidence; ``mask`` says how the masks differ, if they do."""
    suspect, counterpart = pair.suspect, pair.counterpart
    if suspect is None:
        return "operation", ["the candidate computes nothing by itself that the reference lacks"]
    if suspect.source is not None:
        return _source_kind(pair, suspect.source)
    if mask is not None:
        return "mask", mask
    if counterpart is None:
        return "operation", ["nothing in the reference takes the same numbers"]
    if counterpart.source is not None:
        return "operation", []
    return _operation_kind(pair, suspect.op, counterpart.op)


def _source_kind(pair: Parted, source: int) -> tuple[CauseKind, list[str]]:
    graph = pair.here.graph
    name = graph.trace.sources.get(source, "constant")
    told = graph.described([source])[0]
    if name == "constant":
        return "constant", [f"a constant that the reference's run does not have: {told}"]
    last = name.rpartition(".")[2]
    kind: CauseKind = "weight" if last in {"weight", "bias"} else "buffer"
    return kind, [f"nothing that the reference computes with in this run has the content of {told}"]


def _operation_kind(pair: Parted, index: int, other: int) -> tuple[CauseKind, list[str]]:
    here, there = pair.here, pair.there
    one, two = there.graph, here.graph
    if other_kernel(one, other, two, index):
        return "kernel", ["one side calls a fused attention and the other computes it step by step"]
    sides = (one, other), (two, index)
    said = [_hashes(one, other), _hashes(two, index)]
    same_op = one.name(other) == two.name(index)
    if said[0] == said[1] and same_op:
        if one.arguments(other) != two.arguments(index):
            return "argument", [f"({one.arguments(other)}) became ({two.arguments(index)})"]
        shapes = [[long_axes(g.value(v).shape) for v in g.op(i).inputs] for g, i in sides]
        if shapes[0] != shapes[1]:
            told = " and ".join(", ".join(g.described(g.op(i).inputs)) for g, i in sides)
            return "shape", [f"the same numbers in other shapes: {told}"]
        return "memory", ["the same operation on the same numbers"]
    if (dtypes := _dtypes_differ(pair, index, other)) is not None:
        return "precision", [dtypes]
    if one.base(other) == two.base(index):
        return _same_operation(pair, index, other)
    if _same_product(pair, index, other):
        if (one.base(other) in _ADDING) != (two.base(index) in _ADDING):
            return "operation", ["one side adds to the product within it, the other one behind it"]
        cuts = [", ".join(g.described(g.data_inputs(i))) for g, i in sides]
        return "shape", [f"a product of the same rows, cut otherwise: ({cuts[0]}), ({cuts[1]})"]
    if not overlap(there.input_roots(other), here.input_roots(index)):
        return "operation", ["which operation of the reference is its counterpart is a guess"]
    return "operation", []


def _same_product(pair: Parted, index: int, other: int) -> bool:
    """Return True if both multiply the same rows and no precision is left to tell them apart.

    In float64 a product that is only cut otherwise does not part.
    """
    one, two = pair.there.graph, pair.here.graph
    if one.trace.rung != "own" or not {one.base(other), two.base(index)} <= PRODUCTS:
        return False
    left, right = (
        {row for v in graph.data_inputs(i) for row in graph.rows(v) or () if row[2]}
        for graph, i in ((one, other), (two, index))
    )
    return bool(left & right)


def _same_operation(pair: Parted, index: int, other: int) -> tuple[CauseKind, list[str]]:
    """Return the kind of a difference between two calls of one operation."""
    one, two = pair.there.graph, pair.here.graph
    left, right = one.op(other).inputs, two.op(index).inputs
    if is_kernel(two, index) and (kind := _same_kernel(pair, index, other)) is not None:
        return kind
    if len(left) == len(right):
        for place, (a, b) in enumerate(zip(left, right, strict=True)):
            if one.value(a).hash == two.value(b).hash:
                continue
            names = one.described([a])[0], two.described([b])[0]
            told = f"input {place}: {names[0]} became {names[1]}"
            if names[0] == names[1]:
                told = f"input {place}, {names[0]}, holds other elements, or in other places"
            if one.is_index(a) and two.is_index(b):
                return _index_kind(one, a, two, b), [told, *_makers(pair, a, b)]
            chosen = None if is_kernel(two, index) else _chosen_otherwise(pair, a, b)
            if chosen is not None:
                return "positions", [told, chosen]
            same_shape = _same_shape(pair, (other, a), (index, b))
            if same_shape and pair.here.exists(b):
                return "wiring", [told, *_makers(pair, a, b)]
            if (weights := _other_weight(one, a, two, b)) is not None:
                return "weight", [told, weights]
            roots = pair.there.roots(a), pair.here.roots(b)
            if same_shape and None not in roots:
                return "layout", [told]
            if roots[0] and roots[1] and roots[0] & roots[1]:
                return "shape", [told]
            if len(left) == 1 and share_rows(one, a, two, b):
                return "shape", [f"the same rows, cut otherwise: {told}"]
    return "operation", []


def _index_kind(one: Graph, there: int, two: Graph, here: int) -> CauseKind:
    """Return the kind of a difference between values that follow from integers and constants."""
    values = one.value(there), two.value(here)
    if all(value.literal is not None for value in values):
        return "constant"
    # a table of cosines follows from positions, too, and is none
    floating = any("float" in value.dtype for value in values)
    return "wiring" if floating else "positions"


def _other_weight(one: Graph, there: int, two: Graph, here: int) -> str | None:
    """Return which stored tensors two values are, whole, if they hold other numbers.

    Of one name and with elements that were not compared they may be one tensor, laid out otherwise.
    """
    left, right = stored_as(one, there), stored_as(two, here)
    if left is None or right is None:
        return None
    bags = one.value(there).bag, two.value(here).bag
    if bags[0] == bags[1] if all(bags) else left == right:
        return None
    if left == right:
        return f"it is {left} on both sides, with other numbers"
    return f"there it is {left} and here it is {right}, which hold other numbers"


def _same_shape(pair: Parted, there: tuple[int, int], here: tuple[int, int]) -> bool:
    """Return True if an operation takes two values in one shape.

    The shape of a value is that of its first meeting. As many elements that make an output of one
    shape were taken alike.
    """
    graphs = pair.there.graph, pair.here.graph
    taken = [g.value(v).shape for g, (_, v) in zip(graphs, (there, here), strict=True)]
    if long_axes(taken[0]) == long_axes(taken[1]):
        return True
    made = [
        long_axes(g.value(g.op(i).outputs[0]).shape)
        for g, (i, _) in zip(graphs, (there, here), strict=True)
    ]
    return prod(taken[0]) == prod(taken[1]) and made[0] == made[1]


def _same_kernel(pair: Parted, index: int, other: int) -> tuple[CauseKind, list[str]] | None:
    """Return how the keys differ that two fused attentions are given, if that is what differs."""
    one, two = pair.there.graph, pair.here.graph
    keys = [graph.op(i).inputs[1] for graph, i in ((one, other), (two, index))]
    there, here = seen_keys(one, other), seen_keys(two, index)
    if there is None or here is None or not there & here:
        return None
    if there != here:
        lost, new = len(there - here), len(here - there)
        told = f"rows of keys that are seen: {lost:,} there alone, {new:,} here alone"
        return "keys", [told, *_put_by(pair, keys)]
    names = [g.described([v])[0] for g, v in zip((one, two), keys, strict=True)]
    if names[0] == names[1]:
        return None
    return "shape", [
        f"keys: {names[0]} became {names[1]}",
        "the keys that any query sees are the same on both sides",
    ]


def _put_by(pair: Parted, values: list[int]) -> list[str]:
    sides = ("there", pair.there, values[0]), ("here", pair.here, values[1])
    return [
        f"what only {name} is made for them begins at {place_of(view.graph, first)}"
        for name, view, value in sides
        if (first := view.first_made(value)) is not None
    ]


def _chosen_otherwise(pair: Parted, a: int, b: int) -> str | None:
    """Return what chose the rows of two values from one table, if they are not the same rows."""
    one, two = pair.there.graph, pair.here.graph
    left, right = choice(one, a), choice(two, b)
    if left is None or right is None or rows_in_place(one, a, two, b):
        return None
    same = [one.value(x).hash == two.value(y).hash for x, y in zip(left, right, strict=True)]
    if same != [True, False]:
        return None
    makers = maker(one, left[1]), maker(two, right[1])
    told = " and ".join(f"{side} by {m}" for side, m in zip(("there", "here"), makers, strict=True))
    return f"rows of one table are chosen {told}"


def _makers(pair: Parted, there: int, here: int) -> list[str]:
    """Return which operations made a value of the candidate and its counterpart."""
    return [
        f"{name} it is from {made}"
        for name, graph, value in (
            ("there", pair.there.graph, there),
            ("here", pair.here.graph, here),
        )
        if (made := maker(graph, value))
    ]


def _dtypes_differ(pair: Parted, index: int, other: int) -> str | None:
    """Return how the precisions differ of two operations that take the same numbers.

    Unless one side casts, they must be the same operation: another one is no question of precision.
    """
    one, two = pair.there.graph, pair.here.graph
    if "_to_copy" in {one.base(other), two.base(index)}:
        if not overlap(pair.there.input_roots(other), pair.here.input_roots(index)):
            return None
        graph, cast = (two, index) if two.base(index) == "_to_copy" else (one, other)
        op = graph.op(cast)
        names = [graph.value(v).dtype for v in (op.inputs[0], op.outputs[0])]
        return f"{_side_name(graph is two)} casts {names[0]} to {names[1]} before it goes on"
    if one.base(other) != two.base(index):
        return None
    pairs = [
        tuple(graph.value(v).dtype for v in (*graph.data_inputs(i), *graph.op(i).outputs[:1]))
        for graph, i in ((one, other), (two, index))
    ]
    left, right = (set(pair) for pair in pairs)
    if left == right:
        return None
    return f"computed in {' and '.join(sorted(left))} there, in {' and '.join(sorted(right))} here"


def _side_name(is_candidate: bool) -> str:
    return "the candidate" if is_candidate else "the reference"


def _hashes(graph: Graph, index: int) -> list[str]:
    return [graph.value(v).hash for v in graph.op(index).inputs]

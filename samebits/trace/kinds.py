"""Classification of the place where two traces diverge."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from samebits.records.trace import CauseKind
from samebits.trace.attention import PRODUCTS, is_kernel, kernel_on_one_side, visible_keys
from samebits.trace.graph import Graph
from samebits.trace.join import Suspect, View
from samebits.trace.origin import (
    choice,
    long_axes,
    made_by,
    maker,
    overlap,
    place_of,
    rows_in_place,
    share_rows,
    stored_as,
)

_ADDING = {"addmm", "baddbmm"}


class Divergence(NamedTuple):
    """Both sides, with the candidate's suspect and its counterpart in the reference."""

    reference: View
    candidate: View
    suspect: Suspect | None
    counterpart: Suspect | None


def kind_of(pair: Divergence, mask: list[str] | None) -> tuple[CauseKind, list[str]]:
    """Return the kind and its evidence; ``mask`` says how the masks differ, if they do."""
    suspect, counterpart = pair.suspect, pair.counterpart
    if suspect is None:
        return "operation", ["all that the candidate computes also occurs in the reference"]
    if suspect.source is not None:
        return _source_kind(pair, suspect.source)
    if mask is not None:
        return "mask", mask
    if counterpart is None:
        return "operation", ["no operation of the reference takes the same numbers"]
    if counterpart.source is not None:
        return "operation", []
    return _operation_kind(pair, suspect.op, counterpart.op)


def _source_kind(pair: Divergence, source: int) -> tuple[CauseKind, list[str]]:
    graph = pair.candidate.graph
    name = graph.trace.sources.get(source, "constant")
    description = graph.described([source])[0]
    if name == "constant":
        return "constant", [f"a constant that the reference's run does not have: {description}"]
    last = name.rpartition(".")[2]
    kind: CauseKind = "weight" if last in {"weight", "bias"} else "buffer"
    return kind, [
        f"no value that the reference computes with in this run has the content of {description}"
    ]


def _operation_kind(
    pair: Divergence, candidate_op: int, reference_op: int
) -> tuple[CauseKind, list[str]]:
    candidate, reference = pair.candidate, pair.reference
    reference_graph, candidate_graph = reference.graph, candidate.graph
    if kernel_on_one_side(reference_graph, reference_op, candidate_graph, candidate_op):
        return "kernel", ["one side calls a fused attention and the other computes it step by step"]
    sides = (reference_graph, reference_op), (candidate_graph, candidate_op)
    hashes = [_hashes(reference_graph, reference_op), _hashes(candidate_graph, candidate_op)]
    same_op = reference_graph.name(reference_op) == candidate_graph.name(candidate_op)
    if hashes[0] == hashes[1] and same_op:
        if reference_graph.arguments(reference_op) != candidate_graph.arguments(candidate_op):
            arguments = [graph.arguments(index) for graph, index in sides]
            return "argument", [f"({arguments[0]}) became ({arguments[1]})"]
        shapes = [[long_axes(g.value(v).shape) for v in g.op(i).inputs] for g, i in sides]
        if shapes[0] != shapes[1]:
            described = " and ".join(", ".join(g.described(g.op(i).inputs)) for g, i in sides)
            return "shape", [f"the same numbers in different shapes: {described}"]
        return "memory", ["the same operation on the same numbers"]
    if (dtypes := _dtype_change(pair, candidate_op, reference_op)) is not None:
        return "precision", [dtypes]
    if reference_graph.base(reference_op) == candidate_graph.base(candidate_op):
        return _same_operation_kind(pair, candidate_op, reference_op)
    if _same_product(pair, candidate_op, reference_op):
        if (reference_graph.base(reference_op) in _ADDING) != (
            candidate_graph.base(candidate_op) in _ADDING
        ):
            return "operation", ["one side adds inside the product, the other side after it"]
        cuts = [", ".join(g.described(g.data_inputs(i))) for g, i in sides]
        return "shape", [f"a product of the same rows, split differently: ({cuts[0]}), ({cuts[1]})"]
    if not overlap(reference.input_roots(reference_op), candidate.input_roots(candidate_op)):
        return "operation", ["the counterpart in the reference is a guess"]
    return "operation", []


def _same_product(pair: Divergence, candidate_op: int, reference_op: int) -> bool:
    """Return True if both multiply the same rows in the dtype of the model.

    In float64 a product that is only cut differently gives the same numbers.
    """
    reference, candidate = pair.reference.graph, pair.candidate.graph
    if (
        reference.trace.rung != "own"
        or not {reference.base(reference_op), candidate.base(candidate_op)} <= PRODUCTS
    ):
        return False
    reference_rows, candidate_rows = (
        {row for v in graph.data_inputs(i) for row in graph.rows(v) or () if row[2]}
        for graph, i in ((reference, reference_op), (candidate, candidate_op))
    )
    return bool(reference_rows & candidate_rows)


def _same_operation_kind(
    pair: Divergence, candidate_op: int, reference_op: int
) -> tuple[CauseKind, list[str]]:
    """Return the kind of a difference between two calls of one operation."""
    reference, candidate = pair.reference.graph, pair.candidate.graph
    reference_inputs = reference.op(reference_op).inputs
    candidate_inputs = candidate.op(candidate_op).inputs
    if (
        is_kernel(candidate, candidate_op)
        and (kind := _key_change(pair, candidate_op, reference_op)) is not None
    ):
        return kind
    if len(reference_inputs) == len(candidate_inputs):
        for place, (a, b) in enumerate(zip(reference_inputs, candidate_inputs, strict=True)):
            if reference.value(a).hash == candidate.value(b).hash:
                continue
            names = reference.described([a])[0], candidate.described([b])[0]
            change = f"input {place}: {names[0]} became {names[1]}"
            if names[0] == names[1]:
                change = (
                    f"input {place}, {names[0]}, holds different elements, or the same ones in "
                    "different places"
                )
            if reference.is_index(a) and candidate.is_index(b):
                return _index_kind(reference, a, candidate, b), [change, *_makers(pair, a, b)]
            chosen = None if is_kernel(candidate, candidate_op) else _selection_change(pair, a, b)
            if chosen is not None:
                return "positions", [change, chosen]
            same_shape = _same_shape(pair, (reference_op, a), (candidate_op, b))
            if same_shape and pair.candidate.exists(b):
                return "wiring", [change, *_makers(pair, a, b)]
            if (weights := _weight_change(reference, a, candidate, b)) is not None:
                return "weight", [change, weights]
            roots = pair.reference.roots(a), pair.candidate.roots(b)
            if same_shape and None not in roots:
                return "layout", [change]
            if roots[0] and roots[1] and roots[0] & roots[1]:
                return "shape", [change]
            if len(reference_inputs) == 1 and share_rows(reference, a, candidate, b):
                return "shape", [f"the same rows, split differently: {change}"]
    return "operation", []


def _index_kind(
    reference: Graph, reference_value: int, candidate: Graph, candidate_value: int
) -> CauseKind:
    """Return the kind of a difference between values that follow from integers and constants."""
    values = reference.value(reference_value), candidate.value(candidate_value)
    if all(value.literal is not None for value in values):
        return "constant"
    # a table of cosines follows from positions, too, but holds none
    floating = any("float" in value.dtype for value in values)
    return "wiring" if floating else "positions"


def _weight_change(
    reference: Graph, reference_value: int, candidate: Graph, candidate_value: int
) -> str | None:
    """Return which stored tensors two whole values are, if their numbers differ.

    With the same name, and elements that were not compared, they may be one tensor in two layouts.
    """
    reference_name = stored_as(reference, reference_value)
    candidate_name = stored_as(candidate, candidate_value)
    if reference_name is None or candidate_name is None:
        return None
    bags = reference.value(reference_value).bag, candidate.value(candidate_value).bag
    if bags[0] == bags[1] if all(bags) else reference_name == candidate_name:
        return None
    if reference_name == candidate_name:
        return f"it is {reference_name} on both sides, with different numbers"
    return f"it is {reference_name} in the reference and {candidate_name} in the candidate, with different numbers"


def _same_shape(pair: Divergence, reference: tuple[int, int], candidate: tuple[int, int]) -> bool:
    """Return True if both operations take their value in the same shape.

    A recorded shape is that of the value's first use. If the numbers of elements agree and the
    outputs have the same shape, both operations took the value in the same shape.
    """
    graphs = pair.reference.graph, pair.candidate.graph
    shapes = [g.value(v).shape for g, (_, v) in zip(graphs, (reference, candidate), strict=True)]
    if long_axes(shapes[0]) == long_axes(shapes[1]):
        return True
    output_shapes = [
        long_axes(g.value(g.op(i).outputs[0]).shape)
        for g, (i, _) in zip(graphs, (reference, candidate), strict=True)
    ]
    return prod(shapes[0]) == prod(shapes[1]) and output_shapes[0] == output_shapes[1]


def _key_change(
    pair: Divergence, candidate_op: int, reference_op: int
) -> tuple[CauseKind, list[str]] | None:
    """Return how the keys of two fused attentions differ; None if something else differs."""
    reference, candidate = pair.reference.graph, pair.candidate.graph
    keys = [
        graph.op(i).inputs[1] for graph, i in ((reference, reference_op), (candidate, candidate_op))
    ]
    reference_rows = visible_keys(reference, reference_op)
    candidate_rows = visible_keys(candidate, candidate_op)
    if reference_rows is None or candidate_rows is None or not reference_rows & candidate_rows:
        return None
    if reference_rows != candidate_rows:
        removed, added = len(reference_rows - candidate_rows), len(candidate_rows - reference_rows)
        counts = f"visible rows of keys: {removed:,} only in the reference, {added:,} only in the candidate"
        return "keys", [counts, *_first_makers(pair, keys)]
    names = [g.described([v])[0] for g, v in zip((reference, candidate), keys, strict=True)]
    if names[0] == names[1]:
        return None
    return "shape", [
        f"keys: {names[0]} became {names[1]}",
        "the visible keys are the same on both sides",
    ]


def _first_makers(pair: Divergence, values: list[int]) -> list[str]:
    sides = (
        ("in the reference", pair.reference, values[0]),
        ("in the candidate", pair.candidate, values[1]),
    )
    return [
        f"what is computed for them only {name} starts at {place_of(view.graph, first)}"
        for name, view, value in sides
        if (first := view.first_made(value)) is not None
    ]


def _selection_change(pair: Divergence, reference_value: int, candidate_value: int) -> str | None:
    """Return which operations selected different rows of the same table; None if none did."""
    reference, candidate = pair.reference.graph, pair.candidate.graph
    reference_choice, candidate_choice = (
        choice(reference, reference_value),
        choice(candidate, candidate_value),
    )
    if (
        reference_choice is None
        or candidate_choice is None
        or rows_in_place(reference, reference_value, candidate, candidate_value)
    ):
        return None
    same = [
        reference.value(x).hash == candidate.value(y).hash
        for x, y in zip(reference_choice, candidate_choice, strict=True)
    ]
    if same != [True, False]:
        return None
    makers = maker(reference, reference_choice[1]), maker(candidate, candidate_choice[1])
    choices = " and ".join(
        f"{side} by {m}"
        for side, m in zip(("in the reference", "in the candidate"), makers, strict=True)
    )
    return f"rows of one table are selected {choices}"


def _makers(pair: Divergence, reference_value: int, candidate_value: int) -> list[str]:
    """Return which operations made a value of the candidate and its counterpart."""
    return [
        f"{name} it is from {maker_words}"
        for name, graph, value in (
            ("in the reference", pair.reference.graph, reference_value),
            ("in the candidate", pair.candidate.graph, candidate_value),
        )
        if (maker_words := maker(graph, value))
    ]


def input_makers(pair: Divergence) -> tuple[list[int], list[int]]:
    """Return the operations that made the inputs in which both sides differ, where both are alike."""
    suspect, counterpart = pair.suspect, pair.counterpart
    if suspect is None or counterpart is None or {suspect.source, counterpart.source} != {None}:
        return [], []
    graphs = pair.reference.graph, pair.candidate.graph
    inputs = [g.op(s.op).inputs for g, s in zip(graphs, (counterpart, suspect), strict=True)]
    if len(inputs[0]) != len(inputs[1]):
        return [], []
    sides: tuple[list[int], list[int]] = ([], [])
    for values in zip(*inputs, strict=True):
        if graphs[0].value(values[0]).hash == graphs[1].value(values[1]).hash:
            continue
        for graph, value, ops in zip(graphs, values, sides, strict=True):
            index, _ = made_by(graph, value)
            if index is not None:
                ops.append(index)
    return sides


def _dtype_change(pair: Divergence, candidate_op: int, reference_op: int) -> str | None:
    """Return how the dtypes of two operations on the same numbers differ.

    Unless one side casts, they must be the same operation: a different operation is not a matter of
    precision.
    """
    reference, candidate = pair.reference.graph, pair.candidate.graph
    if "_to_copy" in {reference.base(reference_op), candidate.base(candidate_op)}:
        if not overlap(
            pair.reference.input_roots(reference_op), pair.candidate.input_roots(candidate_op)
        ):
            return None
        graph, cast = (
            (candidate, candidate_op)
            if candidate.base(candidate_op) == "_to_copy"
            else (reference, reference_op)
        )
        op = graph.op(cast)
        names = [graph.value(v).dtype for v in (op.inputs[0], op.outputs[0])]
        return f"{_side_name(graph is candidate)} casts {names[0]} to {names[1]} first"
    if reference.base(reference_op) != candidate.base(candidate_op):
        return None
    pairs = [
        tuple(graph.value(v).dtype for v in (*graph.data_inputs(i), *graph.op(i).outputs[:1]))
        for graph, i in ((reference, reference_op), (candidate, candidate_op))
    ]
    reference_dtypes, candidate_dtypes = (set(dtypes) for dtypes in pairs)
    if reference_dtypes == candidate_dtypes:
        return None
    reference_words, candidate_words = (
        " and ".join(sorted(dtypes)) for dtypes in (reference_dtypes, candidate_dtypes)
    )
    return f"computed in {reference_words} in the reference, in {candidate_words} in the candidate"


def _side_name(is_candidate: bool) -> str:
    return "the candidate" if is_candidate else "the reference"


def _hashes(graph: Graph, index: int) -> list[str]:
    return [graph.value(v).hash for v in graph.op(index).inputs]

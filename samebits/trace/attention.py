"""Which attention does an operation belong to, what does it do to the scores, and who sees whom?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from samebits.trace import masks
from samebits.trace.origin import maker, place_of

if TYPE_CHECKING:
    from samebits.records.trace import Visibility
    from samebits.trace.graph import Graph, RowKey
    from samebits.trace.join import View

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "_grouped_mm"})
_OF_ATTENTION = PRODUCTS | frozenset(
    [
        "mul",
        "div",
        "add",
        "sub",
        "neg",
        "masked_fill",
        "where",
        "maximum",
        "_to_copy",
        "_softmax",
        "_safe_softmax",
        "zeros_like",
        "full_like",
    ]
)
"""What scores are made of where a fused attention gives the same: product, scale, mask, softmax."""


def is_kernel(graph: Graph, index: int) -> bool:
    """Return True if an operation is a whole attention."""
    name = graph.base(index)
    return "scaled_dot_product" in name or "flash_attn" in name


def other_kernel(one: Graph, other: int, two: Graph, index: int) -> bool:
    """Return True if one side calls a kernel where the other one computes attention by hand."""
    if is_kernel(one, other) == is_kernel(two, index):
        return False
    graph, step = (two, index) if is_kernel(one, other) else (one, other)
    behind = next((seen.op for seen in graph.trace.attentions if seen.op >= step), None)
    if behind is None or is_kernel(graph, behind):
        return False
    return attention_of(graph, step) is not None or graph.module(behind) == graph.module(step)


def beyond_attention(graph: Graph, step: int) -> int | None:
    """Return the first operation from scores to weights that no fused attention does."""
    place = attention_of(graph, step)
    if place is None:
        return None
    last = graph.trace.attentions[place].op
    steps = (
        i
        for i in range(min(step, last), last)
        if graph.module(i) == graph.module(last) and not graph.is_layout(i)
    )
    return next(
        (i for i in steps if graph.base(i) not in _OF_ATTENTION and graph.data_inputs(i)), None
    )


def seen_keys(graph: Graph, index: int) -> frozenset[RowKey] | None:
    """Return the rows of the keys that any query of a fused attention sees; None if not known.

    What nobody sees is padding, or a slot of a cache, and may hold anything.
    """
    place = attention_of(graph, index)
    allowed = None if place is None else masks.unpacked(graph.trace.attentions[place])
    rows = graph.rows(graph.op(index).inputs[1])
    if allowed is None or rows is None:
        return None
    seen = np.asarray(allowed.any(axis=(1, 2)))
    batch, keys = seen.shape
    if len(rows) % (batch * keys):
        return None
    # keys are [batch, heads, keys, width]; heads may stand in two axes
    heads = len(rows) // (batch * keys)
    visible = seen[:, None, :].repeat(heads, axis=1).reshape(-1)
    return frozenset(row for row, is_seen in zip(rows, visible, strict=True) if is_seen)


def mask_story(
    there: View, here: View, index: int, makers: tuple[list[int], list[int]]
) -> list[str] | None:
    """Return how the masks differ, if an operation lies in an attention whose mask does.

    The operations that begin to make either mask are put into ``makers``.
    """
    one, two = there.graph, here.graph
    place = attention_of(two, index)
    if place is None or len(one.trace.attentions) != len(two.trace.attentions):
        return None
    seen = one.trace.attentions[place], two.trace.attentions[place]
    said = masks.difference(*seen, two.trace.real_rows)
    if not said:
        return None
    views = (there, seen[0]), (here, seen[1])
    told = [said]
    for name, (view, attention), first_ones in zip(("there", "here"), views, makers, strict=True):
        mask = _mask_of(view.graph, attention)
        if mask is None:
            told.append(f"{name} it has no mask")
            continue
        told.append(f"{name} the mask is from {maker(view.graph, mask)}")
        if (first := view.first_made(mask)) is not None:
            first_ones.append(first)
            told.append(f"what only {name} is made for it begins at {place_of(view.graph, first)}")
    return told


def _mask_of(graph: Graph, seen: Visibility) -> int | None:
    """Return the mask that an attention was given; None if it has none."""
    if is_kernel(graph, seen.op):
        masked = [v for v in graph.op(seen.op).inputs[3:] if graph.is_index(v)]
        return _as_written(graph, masked[0]) if masked else None
    for index in range(seen.op, max(-1, seen.op - 16), -1):
        if graph.module(index) == graph.module(seen.op) and not graph.is_layout(index):
            places = [v for v in graph.op(index).inputs if graph.is_index(v)]
            places = [v for v in places if len(graph.value(v).shape) > 1]
            if places:
                return places[0]
    return None


def _as_written(graph: Graph, mask: int) -> int:
    """Return the boolean mask that sdpa itself turned into numbers, or the mask as it is."""
    index = graph.producer(mask)
    if index is None or graph.base(index) != "where":
        return mask
    first = graph.op(index).inputs[0]
    return first if graph.value(first).dtype == "bool" else mask


def attention_of(graph: Graph, index: int) -> int | None:
    """Return the place of the attention that an operation masks, or computes with a mask."""
    op = graph.op(index)
    for place, seen in enumerate(graph.trace.attentions):
        if seen.op < index:
            continue
        if seen.op == index:
            return place
        if (graph.op(seen.op).chain, graph.op(seen.op).line) == (op.chain, op.line):
            return place  # a composite operation that was taken to pieces
        same = graph.module(seen.op) == graph.module(index)
        return place if same and _leads_to_scores(graph, index, seen) else None
    return None


def _leads_to_scores(graph: Graph, index: int, seen: Visibility) -> bool:
    """Return True if an operation is the product of query and key or stands behind it."""
    if graph.base(index) in PRODUCTS:
        return True
    return any(
        graph.base(i) in PRODUCTS and graph.module(i) == graph.module(seen.op)
        for i in range(max(0, index - 12), index)
    )


def attention_story(graph: Graph, index: int) -> str:
    """Return the operations of the attention that an operation belongs to, up to its weights."""
    place = attention_of(graph, index)
    if place is None:
        return ""
    last = graph.trace.attentions[place].op
    if is_kernel(graph, last):
        return f"{graph.base(last)}({graph.arguments(last)})"
    first = next(
        (
            i
            for i in range(last, max(-1, last - 16), -1)
            if graph.base(i) in PRODUCTS and graph.module(i) == graph.module(last)
        ),
        last,
    )
    steps = [i for i in range(first, last + 1) if not graph.is_layout(i)]
    return ", ".join(f"{graph.base(i)}({graph.arguments(i)})" for i in steps)

"""Attention in a trace: the operations that belong to one, their masks, and the visible keys."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from samebits.records.trace import Visibility
from samebits.trace import masks
from samebits.trace.graph import Graph, RowKey
from samebits.trace.join import View
from samebits.trace.origin import maker, place_of

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "_grouped_mm"})
_FUSED_OPERATIONS = PRODUCTS | frozenset(
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
"""Operations on scores that a fused attention does, too: product, scale, mask, softmax."""


def is_kernel(graph: Graph, index: int) -> bool:
    """Return True if an operation is a fused attention."""
    name = graph.base(index)
    return "scaled_dot_product" in name or "flash_attn" in name


def kernel_on_one_side(
    reference: Graph, reference_op: int, candidate: Graph, candidate_op: int
) -> bool:
    """Return True if one side calls a fused attention and the other computes it by hand."""
    if is_kernel(reference, reference_op) == is_kernel(candidate, candidate_op):
        return False
    graph, step = (
        (candidate, candidate_op)
        if is_kernel(reference, reference_op)
        else (reference, reference_op)
    )
    attention_op = next(
        (attention.op for attention in graph.trace.attentions if attention.op >= step), None
    )
    if attention_op is None or is_kernel(graph, attention_op):
        return False
    return attention_of(graph, step) is not None or graph.module(attention_op) == graph.module(step)


def first_unfused(graph: Graph, step: int) -> int | None:
    """Return the first operation between scores and weights that no fused attention does."""
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
        (i for i in steps if graph.base(i) not in _FUSED_OPERATIONS and graph.data_inputs(i)), None
    )


def visible_keys(graph: Graph, index: int) -> frozenset[RowKey] | None:
    """Return the rows of the keys that any query of a fused attention sees; None if not known.

    A key that no query sees is padding or a free slot of a cache, and may hold anything.
    """
    place = attention_of(graph, index)
    allowed = None if place is None else masks.unpacked(graph.trace.attentions[place])
    rows = graph.rows(graph.op(index).inputs[1])
    if allowed is None or rows is None:
        return None
    by_batch = np.asarray(allowed.any(axis=(1, 2)))
    batch, keys = by_batch.shape
    if len(rows) % (batch * keys):
        return None
    # keys are [batch, heads, keys, width]; heads may take two axes
    heads = len(rows) // (batch * keys)
    by_row = by_batch[:, None, :].repeat(heads, axis=1).reshape(-1)
    return frozenset(row for row, is_seen in zip(rows, by_row, strict=True) if is_seen)


class MaskDifference(NamedTuple):
    """How the masks of one attention differ on the two sides."""

    lines: list[str]
    """In words; the first line says which query sees which key."""
    maker: str | None
    """The operation that makes the candidate's mask; None if it has no mask."""


def mask_difference(
    reference: View, candidate: View, index: int, makers: tuple[list[int], list[int]]
) -> MaskDifference | None:
    """Return how the masks differ; None if the operation's attention has the same mask.

    The first operations of either mask's computation are appended to ``makers``.
    """
    reference_graph, candidate_graph = reference.graph, candidate.graph
    place = attention_of(candidate_graph, index)
    if place is None or len(reference_graph.trace.attentions) != len(
        candidate_graph.trace.attentions
    ):
        return None
    attentions = reference_graph.trace.attentions[place], candidate_graph.trace.attentions[place]
    difference = masks.difference(*attentions, candidate_graph.trace.real_rows)
    if not difference:
        return None
    views = (reference, attentions[0]), (candidate, attentions[1])
    lines = [difference]
    maker_words: str | None = None
    for name, (view, attention), first_ops in zip(
        ("in the reference", "in the candidate"), views, makers, strict=True
    ):
        mask = _mask_of(view.graph, attention)
        maker_words = None if mask is None else maker(view.graph, mask)
        if mask is None:
            lines.append(f"{name} there is no mask")
            continue
        lines.append(f"{name} the mask is from {maker_words}")
        if (first := view.first_made(mask)) is not None:
            first_ops.append(first)
            lines.append(
                f"what is computed for it only {name} starts at {place_of(view.graph, first)}"
            )
    return MaskDifference(lines, maker_words)  # of the candidate, which is the last of the views


def _mask_of(graph: Graph, attention: Visibility) -> int | None:
    """Return the mask of an attention; None if it has none."""
    if is_kernel(graph, attention.op):
        mask_inputs = [v for v in graph.op(attention.op).inputs[3:] if graph.is_index(v)]
        return _before_conversion(graph, mask_inputs[0]) if mask_inputs else None
    for index in range(attention.op, max(-1, attention.op - 16), -1):
        if graph.module(index) == graph.module(attention.op) and not graph.is_layout(index):
            indices = [v for v in graph.op(index).inputs if graph.is_index(v)]
            indices = [v for v in indices if len(graph.value(v).shape) > 1]
            if indices:
                return indices[0]
    return None


def _before_conversion(graph: Graph, mask: int) -> int:
    """Return the boolean mask that sdpa converted to numbers, or the mask itself."""
    index = graph.producer(mask)
    if index is None or graph.base(index) != "where":
        return mask
    first = graph.op(index).inputs[0]
    return first if graph.value(first).dtype == "bool" else mask


def attention_of(graph: Graph, index: int) -> int | None:
    """Return the index of the attention that an operation belongs to; None if it has none."""
    op = graph.op(index)
    for place, attention in enumerate(graph.trace.attentions):
        if attention.op < index:
            continue
        if attention.op == index:
            return place
        if (graph.op(attention.op).chain, graph.op(attention.op).line) == (op.chain, op.line):
            return place  # a composite operation that was decomposed
        same_module = graph.module(attention.op) == graph.module(index)
        return place if same_module and _leads_to_scores(graph, index, attention) else None
    return None


def _leads_to_scores(graph: Graph, index: int, attention: Visibility) -> bool:
    """Return True if an operation is the product of query and key or follows it."""
    if graph.base(index) in PRODUCTS:
        return True
    return any(
        graph.base(i) in PRODUCTS and graph.module(i) == graph.module(attention.op)
        for i in range(max(0, index - 12), index)
    )


def attention_operations(graph: Graph, index: int) -> str:
    """Return an operation's attention in words: its operations up to the weights."""
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

"""Closer look at a cause: replays of the blamed operation, and how far its outputs differ."""

from __future__ import annotations

import numpy as np

from samebits.records.tensor import TensorRef
from samebits.records.trace import GIVEN, Cause, Look, Trace, Value
from samebits.storage.store import Store
from samebits.trace import sourcediff
from samebits.trace.attention import is_kernel
from samebits.trace.blame import Blamed
from samebits.trace.graph import Graph, row_keys
from samebits.trace.join import Suspect
from samebits.trace.origin import long_axes, maker

_SET_BY_CONSTRUCTORS = {"argument", "constant", "buffer"}
"""Kinds of which the constructor of a module may have set what differs."""
_MAY_BE_MEMORY = {"operation", "memory", "argument"}
"""Kinds that a replay may change to memory layout."""


def closer(
    cause: Cause, blamed: Blamed, reference: Trace | None, candidate: Trace | None, store: Store
) -> Cause:
    """Return the cause with the results of the closer looks at both sides."""
    candidate_look = _look(candidate, blamed.looks[1])
    reference_look = _look(reference, blamed.looks[0])
    updates: dict[str, object] = {}
    evidence = list(cause.evidence)
    if reference is not None and candidate is not None:
        is_set_before = cause.kind in _SET_BY_CONSTRUCTORS
        updates["diffs"] = sourcediff.diffs(reference, candidate, constructors=is_set_before)
    if candidate_look is not None and blamed.suspect is not None:
        if _can_be_replayed(cause, blamed, blamed.suspect):
            replay, kind = _replay_result(cause, blamed, candidate_look)
            updates["replay"] = replay
            one_input = cause.kind == "shape" and len(cause.candidate.inputs) == 1
            if kind and (cause.kind in _MAY_BE_MEMORY or one_input):
                updates["kind"] = kind
        if reference_look is not None and _only_padding_differs(
            cause, reference_look, candidate_look
        ):
            updates["kind"] = "padding"
            updates["replay"] = ""
            evidence.append(
                "its inputs differ only in padding rows, and its output does not differ"
            )
            evidence += _input_makers(blamed)
        if reference_look is not None:
            evidence += _distance_lines(blamed, reference_look, candidate_look, store)
    return cause.model_copy(update={**updates, "evidence": tuple(evidence)})


def _can_be_replayed(cause: Cause, blamed: Blamed, suspect: Suspect) -> bool:
    """Return True if a replay of the suspect is meaningful.

    Pure layout computes no numbers, and one step of attention by hand is not the whole kernel.
    """
    graph = blamed.candidate.graph
    if blamed.leaves_out or suspect.source is not None or graph.is_layout(suspect.op):
        return False
    return cause.kind != "kernel" or is_kernel(graph, suspect.op)


def _input_makers(blamed: Blamed) -> list[str]:
    """Return which operations made the first input of either side."""
    assert blamed.suspect is not None
    sides = (
        ("in the reference", blamed.reference.graph, blamed.counterpart),
        (
            "in the candidate",
            blamed.candidate.graph,
            blamed.suspect,
        ),
    )
    return [
        f"{name} it is from {maker_words}"
        for name, graph, suspect in sides
        if suspect is not None and (maker_words := maker(graph, graph.op(suspect.op).inputs[0]))
    ]


def _only_padding_differs(cause: Cause, reference_look: Look, candidate_look: Look) -> bool:
    """Return True if the inputs differ only in padding, which traces leave out."""
    if cause.kind != "memory" or len(reference_look.inputs) != len(candidate_look.inputs):
        return False
    return any(
        a.whole != b.whole
        for a, b in zip(reference_look.inputs, candidate_look.inputs, strict=True)
    )


def _look(trace: Trace | None, indices: list[int]) -> Look | None:
    return None if trace is None or not indices else trace.looks.get(indices[0])


def _replay_result(cause: Cause, blamed: Blamed, look: Look) -> tuple[str, str]:
    """Return the result of a replay in words, and the kind that it shows; '' for none."""
    assert blamed.suspect is not None
    op = blamed.candidate.graph.op(blamed.suspect.op)
    outputs = {blamed.candidate.graph.value(v).hash for v in op.outputs}
    name = cause.candidate.op
    if look.fresh is None or look.same_layout is None:
        return f"{name} could not be replayed on its own", ""
    if _exists(look.fresh[0], blamed.reference.graph):
        where = "; ".join(
            f"{list(tensor.shape)} strides {list(tensor.strides)}, {tensor.aligned} bytes after a "
            f"64-byte boundary"
            for tensor in look.inputs
        )
        return (
            f"replayed on contiguous copies of the reference's inputs, {name} gives the "
            f"reference's output; the inputs of this run have the memory layout {where}"
        ), "memory"
    if look.fresh[0].hash in outputs:
        return (
            f"replayed on copies of its inputs, {name} gives the same output again: the difference is "
            f"in what it is given"
            if cause.kind in GIVEN
            else f"replayed on the reference's inputs, {name} gives the candidate's output again: "
            f"the difference starts in this operation"
        ), ""
    if look.same_layout[0].hash in outputs:
        return (
            f"replayed on the reference's inputs, {name} gives the candidate's output if their "
            f"strides are kept, and a third output if they are contiguous"
        ), "memory" if _same_operation(cause) else ""
    return (
        f"replayed on copies of its own inputs, {name} gives a different output: its bits depend "
        f"on the place of the inputs in memory"
    ), "memory"


def _same_operation(cause: Cause) -> bool:
    return cause.reference is not None and cause.reference.op == cause.candidate.op


def _exists(value: Value, reference: Graph) -> bool:
    """Return True if the other side has a content: equal, reordered, or row by row."""
    if value.hash in reference.by_hash or (value.bag and value.bag in reference.by_bag):
        return True
    rows = row_keys(value)
    return bool(rows) and all(row in reference.by_row for row in rows or () if row[2])


def _distance_lines(
    blamed: Blamed, reference_look: Look, candidate_look: Look, store: Store
) -> list[str]:
    """Return how far the two outputs, or the two stored tensors, differ."""
    assert blamed.suspect is not None
    if blamed.suspect.source is None:
        pair = reference_look.outputs[:1], candidate_look.outputs[:1]
        what = "outputs"
    else:
        counterpart = blamed.counterpart
        if counterpart is None or counterpart.source is None:
            return []
        candidate_place = _input_index(
            blamed.candidate.graph, blamed.suspect.op, blamed.suspect.source
        )
        reference_place = _input_index(blamed.reference.graph, counterpart.op, counterpart.source)
        pair = (
            reference_look.inputs[reference_place : reference_place + 1],
            candidate_look.inputs[candidate_place : candidate_place + 1],
        )
        what = "tensors"
    if not pair[0] or not pair[1] or not all(map(store.has, (pair[0][0], pair[1][0]))):
        return []
    distance = _distance(pair[0][0], pair[1][0], store)
    return [f"the {what} differ {distance}"] if distance else []


def _input_index(graph: Graph, index: int, value: int) -> int:
    return graph.op(index).inputs.index(value)


def _distance(reference: TensorRef, candidate: TensorRef, store: Store) -> str:
    """Return how many elements differ and by how much; '' if the shapes differ."""
    if long_axes(reference.shape) != long_axes(candidate.shape) or not reference.numel:
        return ""
    reference_values, candidate_values = (
        store.tensor(ref).reshape(-1) for ref in (reference, candidate)
    )
    reference_values, candidate_values = (
        np.asarray(side, np.float64) for side in (reference_values, candidate_values)
    )
    with np.errstate(invalid="ignore"):
        gap = np.abs(reference_values - candidate_values)
    # two NaN, or two equal infinities, do not differ
    differs = (reference_values != candidate_values) & ~(
        np.isnan(reference_values) & np.isnan(candidate_values)
    )
    gap = gap[differs]
    if not gap.size:
        return ""
    count = f"in {gap.size:,} of {reference.numel:,} elements"
    if not np.isfinite(gap).all():
        return f"{count}, some of them by infinity"
    return f"{count}, by at most {gap.max():.1e}"

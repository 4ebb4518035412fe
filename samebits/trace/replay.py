"""Does the operation that is blamed differ by itself, and by how much: what a closer look shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from samebits.trace import sourcediff
from samebits.trace.attention import is_kernel
from samebits.trace.graph import row_keys
from samebits.trace.origin import long_axes, maker

if TYPE_CHECKING:
    from samebits.records.tensor import TensorRef
    from samebits.records.trace import Cause, Look, Trace, Value
    from samebits.storage.store import Store
    from samebits.trace.blame import Blamed
    from samebits.trace.graph import Graph
    from samebits.trace.join import Suspect


_MAY_BE_MEMORY = {"operation", "memory", "argument"}
"""Kinds of which a closer look may say that it is where the numbers lie in memory."""


def closer(
    cause: Cause, blamed: Blamed, reference: Trace | None, candidate: Trace | None, store: Store
) -> Cause:
    """Return the cause with what the closer looks at both sides add."""
    mine = _look(candidate, blamed.looks[1])
    theirs = _look(reference, blamed.looks[0])
    updates: dict[str, object] = {}
    evidence = list(cause.evidence)
    if reference is not None and candidate is not None:
        updates["diffs"] = sourcediff.diffs(reference, candidate)
    if mine is not None and blamed.suspect is not None:
        if _tells(cause, blamed, blamed.suspect):
            said, kind = _replayed(cause, blamed, mine)
            updates["replay"] = said
            one_input = cause.kind == "shape" and len(cause.candidate.inputs) == 1
            if kind and (cause.kind in _MAY_BE_MEMORY or one_input):
                updates["kind"] = kind
        if theirs is not None and _only_pads_differ(cause, theirs, mine):
            updates["kind"] = "padding"
            updates["replay"] = ""
            evidence.append(
                "what it takes differs in rows of padding alone, what it gives does not"
            )
            evidence += _made_by(blamed)
        if theirs is not None:
            evidence += _apart(blamed, theirs, mine, store)
    return cause.model_copy(update={**updates, "evidence": tuple(evidence)})


def _tells(cause: Cause, blamed: Blamed, suspect: Suspect) -> bool:
    """Return True if running the suspect again tells anything of it.

    Pure layout computes nothing, and one step of attention by hand is not what the kernel is.
    """
    graph = blamed.here.graph
    if suspect.source is not None or graph.is_layout(suspect.op):
        return False
    return cause.kind != "kernel" or is_kernel(graph, suspect.op)


def _made_by(blamed: Blamed) -> list[str]:
    """Return which operations made what both sides take."""
    assert blamed.suspect is not None
    sides = (
        ("there", blamed.there.graph, blamed.counterpart),
        (
            "here",
            blamed.here.graph,
            blamed.suspect,
        ),
    )
    return [
        f"{name} it is from {made}"
        for name, graph, suspect in sides
        if suspect is not None and (made := maker(graph, graph.op(suspect.op).inputs[0]))
    ]


def _only_pads_differ(cause: Cause, theirs: Look, mine: Look) -> bool:
    """Return True if the inputs agree but for padding, which traces leave out."""
    if cause.kind != "memory" or len(theirs.inputs) != len(mine.inputs):
        return False
    return any(a.whole != b.whole for a, b in zip(theirs.inputs, mine.inputs, strict=True))


def _look(trace: Trace | None, wanted: list[int]) -> Look | None:
    return None if trace is None or not wanted else trace.looks.get(wanted[0])


def _replayed(cause: Cause, blamed: Blamed, look: Look) -> tuple[str, str]:
    """Return what the operation gives when it runs again by itself, and a kind if that tells one."""
    assert blamed.suspect is not None
    op = blamed.here.graph.op(blamed.suspect.op)
    own = {blamed.here.graph.value(v).hash for v in op.outputs}
    name = cause.candidate.op
    if look.fresh is None or look.same_layout is None:
        return f"{name} could not be run again by itself", ""
    if _exists(look.fresh[0], blamed.there.graph):
        where = "; ".join(
            f"{list(seen.shape)} strides {list(seen.strides)}, {seen.aligned} bytes behind a "
            f"64-byte boundary"
            for seen in look.inputs
        )
        return (
            f"fed the reference's inputs as contiguous copies, {name} gives the reference's "
            f"output; here they lie in memory as {where}"
        ), "memory"
    if look.fresh[0].hash in own:
        return (
            f"fed the reference's inputs by itself, {name} gives the candidate's output again: "
            f"the difference is introduced here and not inherited"
        ), ""
    if look.same_layout[0].hash in own:
        return (
            f"fed the reference's inputs by itself, {name} gives the candidate's output if they lie "
            f"in memory as they do there, and a third one if they are contiguous"
        ), "memory" if _same_operation(cause) else ""
    return (
        f"fed copies of its own inputs, {name} gives another output: where they lie in memory "
        f"changes its bits"
    ), "memory"


def _same_operation(cause: Cause) -> bool:
    return cause.reference is not None and cause.reference.op == cause.candidate.op


def _exists(value: Value, there: Graph) -> bool:
    """Return True if the other side has a content, as it is, in another order, or by its rows."""
    if value.hash in there.by_hash or (value.bag and value.bag in there.by_bag):
        return True
    rows = row_keys(value)
    return bool(rows) and all(row in there.by_row for row in rows or () if row[2])


def _apart(blamed: Blamed, theirs: Look, mine: Look, store: Store) -> list[str]:
    """Return how far the two outputs, or the two stored tensors, are apart."""
    assert blamed.suspect is not None
    if blamed.suspect.source is None:
        pair = theirs.outputs[:1], mine.outputs[:1]
        what = "outputs"
    else:
        hashes = blamed.there.graph, blamed.counterpart
        if hashes[1] is None or hashes[1].source is None:
            return []
        place = _place_of(blamed.here.graph, blamed.suspect.op, blamed.suspect.source)
        other = _place_of(hashes[0], hashes[1].op, hashes[1].source)
        pair = theirs.inputs[other : other + 1], mine.inputs[place : place + 1]
        what = "tensors"
    if not pair[0] or not pair[1] or not all(map(store.has, (pair[0][0], pair[1][0]))):
        return []
    said = _distance(pair[0][0], pair[1][0], store)
    return [f"the {what} differ {said}"] if said else []


def _place_of(graph: Graph, index: int, value: int) -> int:
    return graph.op(index).inputs.index(value)


def _distance(one: TensorRef, other: TensorRef, store: Store) -> str:
    """Return how many elements differ and by how much; '' if they are not as many."""
    if long_axes(one.shape) != long_axes(other.shape) or not one.numel:
        return ""
    left, right = (store.tensor(ref).reshape(-1) for ref in (one, other))
    left, right = (np.asarray(side, np.float64) for side in (left, right))
    with np.errstate(invalid="ignore"):
        gap = np.abs(left - right)
    # where both are NaN, or infinite alike, nothing is apart
    apart = (left != right) & ~(np.isnan(left) & np.isnan(right))
    gap = gap[apart]
    if not gap.size:
        return ""
    said = f"in {gap.size:,} of {one.numel:,} elements"
    if not np.isfinite(gap).all():
        return f"{said}, some of them by infinity"
    return f"{said}, by at most {gap.max():.1e}"

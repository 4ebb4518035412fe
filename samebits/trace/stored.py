"""Causes that need no trace: a stored tensor or an input that differs."""

from __future__ import annotations

from samebits.records.capture import Capture, WeightFacts
from samebits.records.comparison import CellResult, ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.trace import Cause, CauseKind, Side

_KINDS: dict[Signal, CauseKind] = {
    "inputs": "input",
    "weights": "weight",
    "buffers": "buffer",
    "inv_freq": "buffer",
}
_MAX_OTHERS = 4
"""Further tensors that a cause lists."""


def cause_of(result: CellResult) -> Cause | None:
    """Return the first stored tensor of a cell that differs; None if none does."""
    for signal in result.signals:
        differing = [
            item for item in signal.items if item.outcome == "differs" and not item.excused
        ]
        if signal.signal in _KINDS and differing:
            return _cause(result, signal, differing)
    return None


def with_tensor_kind(cause: Cause | str | None, capture: Capture) -> Cause | str | None:
    """Return the cause with the right kind of its stored tensor: parameter or buffer.

    A trace guesses the kind from the name. The capture has recorded it.
    """
    if not isinstance(cause, Cause):
        return cause
    beyond = with_tensor_kind(cause.beyond, capture)
    cause = cause.model_copy(update={"beyond": beyond})
    if cause.kind not in {"weight", "buffer"}:
        return cause
    facts = _weight(capture, cause.candidate.tensor)
    if facts is None:
        return cause
    kind = "weight" if facts.kind == "parameter" else "buffer"
    return cause.model_copy(update={"kind": kind})


def with_held(cause: Cause, reference: Capture, candidate: Capture) -> Cause:
    """Return the cause with those unread parameters of a side that it holds with the other side's bytes.

    A side may hold a parameter as a part of a larger one, which its operations read.
    """
    sides = {"candidate": (cause.candidate, candidate, reference)}
    if cause.reference is not None:
        sides["reference"] = (cause.reference, reference, candidate)
    traces = {
        name: side.model_copy(
            update={"unread": tuple(n for n in side.unread if _holds(own, counterpart, n))}
        )
        for name, (side, own, counterpart) in sides.items()
    }
    beyond = cause.beyond and with_held(cause.beyond, reference, candidate)
    return cause.model_copy(update={"beyond": beyond, **traces})


def _holds(capture: Capture, counterpart: Capture, name: str) -> bool:
    """Return True if a run holds a loaded parameter of the other run, named as there, as one of its own."""
    facts = _weight(counterpart, name)
    weights = capture.signals.weights
    if facts is None or facts.origin != "loaded" or weights is None:
        return False
    return any(
        (own.kind, own.ref.hash, own.pieces) == (facts.kind, facts.ref.hash, facts.pieces)
        for own in weights.tensors.values()
    )


def _weight(capture: Capture, name: str) -> WeightFacts | None:
    tensors = capture.signals.tensors
    return next((f for n, f in tensors.items() if name in {n, *f.aliases}), None)


def _cause(result: CellResult, signal: SignalComparison, differing: list[ItemComparison]) -> Cause:
    assert result.reference is not None
    first, more = differing[0], differing[1:]
    reference = result.reference.stack
    return Cause(
        kind=_KINDS[signal.signal],
        headline=f"{first.name} holds different numbers than in {reference}",
        prompt="",
        what="load",
        sink=signal.signal,
        candidate=Side(stack=result.cell.stack, tensor=first.name),
        reference=Side(stack=reference, tensor=first.name),
        evidence=tuple(_evidence(result, first)),
        also=tuple(item.name for item in more[:_MAX_OTHERS]),
    )


def _evidence(result: CellResult, item: ItemComparison) -> list[str]:
    lines = []
    if item.metrics is not None:
        n, total = item.metrics.n_differ, item.metrics.n
        lines.append(f"{n:,} of {total:,} elements differ, by at most {item.metrics.max_abs:.1e}")
    elif item.note:
        lines.append(item.note)
    if not any(s.outcome == "differs" for s in result.signals if s.signal in _COMPUTED):
        lines.append("nothing that this run computes from it differs")
    return lines


_COMPUTED = {"hidden_states", "logits", "outputs", "decode", "greedy", "state"}

"""The cause that no trace is needed for: a stored tensor, or one that is fed, is not the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.records.trace import Cause, Side

if TYPE_CHECKING:
    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult, ItemComparison, SignalComparison
    from samebits.records.ids import Signal
    from samebits.records.trace import CauseKind

_KINDS: dict[Signal, CauseKind] = {
    "inputs": "input",
    "weights": "weight",
    "buffers": "buffer",
    "inv_freq": "buffer",
}
_OTHERS = 4
"""Further tensors that are named."""


def cause_of(result: CellResult) -> Cause | None:
    """Return the first stored tensor of a cell that differs; None if none does."""
    for signal in result.signals:
        found = [item for item in signal.items if item.outcome == "differs" and not item.excused]
        if signal.signal in _KINDS and found:
            return _cause(result, signal, found)
    return None


def named(cause: Cause | str | None, capture: Capture) -> Cause | str | None:
    """Return the cause with a stored tensor called what the model has it as.

    A trace tells a parameter from a buffer by its name alone; the capture knows.
    """
    if not isinstance(cause, Cause):
        return cause
    beyond = named(cause.beyond, capture)
    cause = cause.model_copy(update={"beyond": beyond})
    weights = capture.signals.weights
    if cause.kind not in {"weight", "buffer"} or weights is None:
        return cause
    name = cause.candidate.tensor
    facts = next((f for n, f in weights.tensors.items() if name in {n, *f.aliases}), None)
    if facts is None:
        return cause
    kind = "weight" if facts.kind == "parameter" else "buffer"
    return cause.model_copy(update={"kind": kind})


def _cause(result: CellResult, signal: SignalComparison, found: list[ItemComparison]) -> Cause:
    assert result.reference is not None
    first, more = found[0], found[1:]
    there = result.reference.stack
    return Cause(
        kind=_KINDS[signal.signal],
        headline=f"{first.name} does not hold the same numbers as in {there}",
        prompt="",
        what="load",
        sink=signal.signal,
        candidate=Side(stack=result.cell.stack, tensor=first.name),
        reference=Side(stack=there, tensor=first.name),
        evidence=tuple(_evidence(result, first)),
        also=tuple(item.name for item in more[:_OTHERS]),
    )


def _evidence(result: CellResult, item: ItemComparison) -> list[str]:
    told = []
    if item.metrics is not None:
        n, of = item.metrics.n_differ, item.metrics.n
        told.append(f"{n:,} of {of:,} elements differ, by at most {item.metrics.max_abs:.1e}")
    elif item.note:
        told.append(item.note)
    if not any(s.outcome == "differs" for s in result.signals if s.signal in _COMPUTED):
        told.append("nothing that the model computes from it differs in what was run")
    return told


_COMPUTED = {"hidden_states", "logits", "decode", "greedy"}

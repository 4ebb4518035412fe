"""What is worth knowing of a cell though it makes no verdict?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.amounts import short, some
from samebits.compare.buffers import NEITHER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capture import Capture, InvFreqFacts
    from samebits.records.comparison import SignalComparison

ORIGINS = {
    "reinitialised": "other bytes at every load: the checkpoint does not give them",
    "unwritten": "memory that nothing ever wrote",
    "unexplained": "neither from the checkpoint nor as a fresh model has them",
}


def notes(capture: Capture, signals: tuple[SignalComparison, ...] = ()) -> tuple[str, ...]:
    """Return the notes on one complete run, and on how it compares."""
    return (
        *_origins(capture),
        *_buffers(capture),
        *_frequencies(capture),
        *_dtypes(capture),
        *_probe_effect(capture),
        *_signals(signals),
    )


def _origins(capture: Capture) -> Iterator[str]:
    weights = capture.signals.weights
    for origin, meaning in ORIGINS.items() if weights is not None else ():
        tensors = weights.tensors if weights is not None else {}
        names = [name for name, facts in tensors.items() if facts.origin == origin]
        if names:
            yield f"weights {origin} ({meaning}): {some(names)}"


def _buffers(capture: Capture) -> Iterator[str]:
    buffers = capture.signals.buffers or {}
    unwritten = [name for name, facts in buffers.items() if facts.unwritten]
    if unwritten:
        yield f"buffers that nothing ever wrote: {some(unwritten)}"
    unlike = [
        name
        for name, facts in buffers.items()
        if facts.fresh == "differs" and not facts.unwritten and not facts.persistent
    ]
    if unlike:
        yield f"buffers unlike those of a model made fresh from the config: {some(unlike)}"


def _frequencies(capture: Capture) -> Iterator[str]:
    for name, facts in (capture.signals.inv_freq or {}).items():
        off = _off_formula(facts)
        if off:
            yield f"inv_freq {name}: {off}"


def _off_formula(facts: InvFreqFacts) -> str:
    formula = facts.formula
    if formula is None or formula.max_ulp is None or formula.bound_ulp is None:
        return ""
    if formula.max_ulp <= formula.bound_ulp:
        return ""
    return (
        f"{short(formula.max_ulp)} ULP off the formula of rope type {formula.rope_type}; "
        f"rounding explains {short(formula.bound_ulp)} at most"
    )


def _dtypes(capture: Capture) -> Iterator[str]:
    load = capture.signals.load
    if load is None:
        return
    asked = load.requested_dtype.removeprefix("torch.")
    for what, found in (
        ("parameters", load.parameter_dtypes),
        ("layer outputs", load.activation_dtypes),
    ):
        others = {dtype: n for dtype, n in found.items() if dtype.removeprefix("torch.") != asked}
        if others:
            counts = ", ".join(f"{n:,} in {dtype}" for dtype, n in sorted(others.items()))
            yield f"{asked} was asked for, and of {sum(found.values()):,} {what} {counts}"


def _probe_effect(capture: Capture) -> Iterator[str]:
    if capture.probe_effect == "changed the bits":
        yield "watching the attention calls changed the logits: they may not be those of a plain run"


def _signals(signals: tuple[SignalComparison, ...]) -> Iterator[str]:
    for signal in signals:
        pads = [item.name for item in signal.items if item.pad_rows == "differ"]
        if pads:
            yield f"{signal.signal}: padding rows differ, which counts for no verdict: {some(pads, 2)}"
        if signal.outcome == "not compared" and not signal.note.startswith(NEITHER):
            yield f"{signal.signal}: not compared: {signal.note}"
        elif signal.outcome != "not compared":
            yield from _items(signal)


def _items(signal: SignalComparison) -> Iterator[str]:
    told: dict[str, list[str]] = {}
    for item in signal.items:
        if item.outcome == "not compared":
            told.setdefault(f"not compared: {item.note}", []).append(item.name)
        elif signal.signal == "decode" and item.outcome == "identical":  # shown for its note
            told.setdefault(f"identical {item.note}", []).append(item.name)
    for note, names in told.items():
        yield f"{signal.signal} {some(names)}: {note}"

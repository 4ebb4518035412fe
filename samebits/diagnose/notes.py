"""Notes on a cell that do not affect its verdict."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.describe import short, some
from samebits.compare.outcome import differs
from samebits.compare.raised import checks
from samebits.records.capture import Capture, InvFreqFacts
from samebits.records.comparison import SignalComparison
from samebits.records.subject import Reason

ORIGINS = {
    "reinitialised": "different bytes at every load: they are not from the checkpoint",
    "unwritten": "memory that was never written",
    "unexplained": "neither from the checkpoint nor the same as in a freshly constructed model",
}


def notes(
    capture: Capture,
    signals: tuple[SignalComparison, ...] = (),
    informing: tuple[SignalComparison, ...] = (),
) -> tuple[str, ...]:
    """Return the notes on one complete run, and on its comparison.

    ``informing`` are the user's probes that only inform.
    """
    return (
        *_origin_notes(capture),
        *_buffer_notes(capture),
        *_frequency_notes(capture),
        *_dtype_notes(capture),
        *_probe_effect_notes(capture),
        *_signal_notes(signals),
        *_informing_notes(informing),
    )


def raised_notes(reference: Capture, candidate: Capture) -> Iterator[str]:
    """Yield which checks raise on both sides, so that there is nothing to compare."""
    both = [check for check in checks(reference, candidate) if not check.differs]
    if any(check.is_same for check in both):
        names = some(check.name for check in both if check.is_same)
        yield f"not observed, as it raises the same in the candidate and in the reference: {names}"
    for check in (check for check in both if not check.is_same):
        yield f"{check.name} raises in the candidate and in the reference: {check.reference} → {check.candidate}"


def _origin_notes(capture: Capture) -> Iterator[str]:
    weights = capture.signals.weights
    for origin, meaning in ORIGINS.items() if weights is not None else ():
        tensors = weights.tensors if weights is not None else {}
        names = [name for name, facts in tensors.items() if facts.origin == origin]
        if names:
            yield f"weights {origin} ({meaning}): {some(names)}"


def _buffer_notes(capture: Capture) -> Iterator[str]:
    buffers = capture.signals.buffers or {}
    unwritten = [name for name, facts in buffers.items() if facts.unwritten]
    if unwritten:
        yield f"buffers that were never written: {some(unwritten)}"
    different = [
        name
        for name, facts in buffers.items()
        if facts.fresh == "differs" and not facts.unwritten and not facts.persistent
    ]
    if different:
        yield f"buffers that differ from a model freshly constructed from the config: {some(different)}"


def _frequency_notes(capture: Capture) -> Iterator[str]:
    for name, facts in (capture.signals.inv_freq or {}).items():
        note = _formula_note(facts)
        if note:
            yield f"inv_freq {name}: {note}"


def _formula_note(facts: InvFreqFacts) -> str:
    formula = facts.formula
    if formula is None or formula.max_ulp is None or formula.bound_ulp is None:
        return ""
    if formula.max_ulp <= formula.bound_ulp:
        return ""
    return (
        f"{short(formula.max_ulp)} ULP away from the formula of rope type {formula.rope_type}; "
        f"rounding explains {short(formula.bound_ulp)} at most"
    )


def _dtype_notes(capture: Capture) -> Iterator[str]:
    load = capture.signals.load
    if load is None:
        return
    requested = load.requested_dtype.removeprefix("torch.")
    for subject, dtype_counts in (
        ("parameters", load.parameter_dtypes),
        ("layer outputs", load.activation_dtypes),
    ):
        others = {
            dtype: n
            for dtype, n in dtype_counts.items()
            if dtype.removeprefix("torch.") != requested
        }
        if others:
            counts = ", ".join(f"{n:,} in {dtype}" for dtype, n in sorted(others.items()))
            total = sum(dtype_counts.values())
            yield f"{requested} was requested, but of {total:,} {subject} {counts}"


def _probe_effect_notes(capture: Capture) -> Iterator[str]:
    if capture.probe_effect == "changed the bits":
        yield (
            "watching the attention calls changed the logits, so they may differ from those of a "
            "plain run"
        )


def _signal_notes(signals: tuple[SignalComparison, ...]) -> Iterator[str]:
    for signal in signals:
        pads = [item.name for item in signal.items if item.pad_rows == "differ"]
        if pads:
            yield (
                f"{signal.signal}: padding rows differ, which does not affect the verdict: "
                f"{some(pads, 2)}"
            )
        if signal.outcome == "not compared" and signal.reason != Reason.ON_NEITHER_SIDE:
            yield f"{signal.signal}: not compared: {signal.note}"
        elif signal.outcome != "not compared":
            yield from _item_notes(signal)


def _informing_notes(signals: tuple[SignalComparison, ...]) -> Iterator[str]:
    for signal in signals:
        names = [item.name for item in signal.items if differs(item)]
        if names:
            yield f"probe {signal.signal}, which only informs, differs: {some(names)}"
        if signal.outcome == "not compared" and not signal.items:
            yield f"{signal.signal}: not compared: {signal.note}"
        yield from _item_notes(signal)


def _item_notes(signal: SignalComparison) -> Iterator[str]:
    names_by_note: dict[str, list[str]] = {}
    for item in signal.items:
        if item.outcome == "not compared":
            names_by_note.setdefault(f"not compared: {item.note}", []).append(item.name)
        elif (
            signal.signal == "decode" and item.outcome == "identical"
        ):  # listed only because of its note
            names_by_note.setdefault(f"identical {item.note}", []).append(item.name)
    for note, names in names_by_note.items():
        yield f"{signal.signal} {some(names)}: {note}"

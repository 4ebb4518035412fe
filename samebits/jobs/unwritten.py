"""What only both runs of a cell show: false alarms about memory, and probes that do not repeat.

Each of the two runs fills memory with a different byte before it loads the model, and reports a
tensor as unwritten if the tensor holds that byte. If both runs hold the same bytes, the tensor was
written, and the byte is its value: 63 in int8, -6.0 in bfloat16.
"""

from __future__ import annotations

from samebits.compare.probes import with_repeats
from samebits.records.capture import BufferFacts, Capture, WeightFacts


def without_false_alarms(first: Capture, second: Capture) -> tuple[Capture, Capture]:
    """Return both captures, with "unwritten" cleared where the other run holds the same bytes.

    Each of the user's probes says whether the other run gave the same.
    """
    first, second = _corrected(first, second), _corrected(second, first)
    return with_repeats(first, second), with_repeats(second, first)


def _corrected(capture: Capture, other_run: Capture) -> Capture:
    weights = _written_weights(capture, other_run)
    buffers = _written_buffers(capture, other_run)
    if not weights and not buffers:
        return capture
    signals = capture.signals
    if weights and signals.weights is not None:
        tensors = {**signals.weights.tensors, **weights}
        weights_signal = signals.weights.model_copy(update={"tensors": tensors})
        signals = signals.model_copy(update={"weights": weights_signal})
    if buffers:
        signals = signals.model_copy(update={"buffers": {**(signals.buffers or {}), **buffers}})
    return capture.model_copy(update={"signals": signals})


def _written_weights(capture: Capture, other_run: Capture) -> dict[str, WeightFacts]:
    """Return the weights to correct, with the origin that the other run found."""
    weights, other_weights = capture.signals.weights, other_run.signals.weights
    if weights is None or other_weights is None:
        return {}
    return {
        name: facts.model_copy(update={"origin": other_weights.tensors[name].origin})
        for name, facts in weights.tensors.items()
        if facts.origin == "unwritten"
        and name in other_weights.tensors
        and other_weights.tensors[name].ref.hash == facts.ref.hash
    }


def _written_buffers(capture: Capture, other_run: Capture) -> dict[str, BufferFacts]:
    other_buffers = other_run.signals.buffers or {}
    return {
        name: facts.model_copy(update={"unwritten": False})
        for name, facts in (capture.signals.buffers or {}).items()
        if facts.unwritten
        and name in other_buffers
        and other_buffers[name].ref.hash == facts.ref.hash
    }

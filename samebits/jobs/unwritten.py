"""Which tensors did nothing ever write? One run suspects, and only two can tell.

A run takes a tensor for memory that nothing wrote where it holds the byte that the run filled memory
with. The other run filled it with another byte, so content that both have was written, and is that
byte by its value: 63 in int8, -6.0 in bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.records.capture import BufferFacts, Capture, WeightFacts


def believed(first: Capture, second: Capture) -> tuple[Capture, Capture]:
    """Return the captures of both runs of a cell, without what one of them suspects in vain."""
    return _cleared(first, second), _cleared(second, first)


def _cleared(capture: Capture, other: Capture) -> Capture:
    weights = _written_weights(capture, other)
    buffers = _written_buffers(capture, other)
    if not weights and not buffers:
        return capture
    signals = capture.signals
    if weights and signals.weights is not None:
        tensors = {**signals.weights.tensors, **weights}
        told = signals.weights.model_copy(update={"tensors": tensors})
        signals = signals.model_copy(update={"weights": told})
    if buffers:
        signals = signals.model_copy(update={"buffers": {**(signals.buffers or {}), **buffers}})
    return capture.model_copy(update={"signals": signals})


def _written_weights(capture: Capture, other: Capture) -> dict[str, WeightFacts]:
    """Return what the other run holds alike, with the origin that the other run found."""
    mine, theirs = capture.signals.weights, other.signals.weights
    if mine is None or theirs is None:
        return {}
    return {
        name: facts.model_copy(update={"origin": theirs.tensors[name].origin})
        for name, facts in mine.tensors.items()
        if facts.origin == "unwritten"
        and name in theirs.tensors
        and theirs.tensors[name].ref.hash == facts.ref.hash
    }


def _written_buffers(capture: Capture, other: Capture) -> dict[str, BufferFacts]:
    theirs = other.signals.buffers or {}
    return {
        name: facts.model_copy(update={"unwritten": False})
        for name, facts in (capture.signals.buffers or {}).items()
        if facts.unwritten and name in theirs and theirs[name].ref.hash == facts.ref.hash
    }

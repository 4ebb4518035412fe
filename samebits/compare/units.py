"""The signals that make a verdict: how each is compared, and what both runs of a cell must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from samebits.compare import named
from samebits.compare import outputs as other_outputs
from samebits.compare import state as left
from samebits.compare.buffers import buffers, inv_freq
from samebits.compare.forwards import decode, greedy, hidden_states, inputs, logits
from samebits.compare.phases import row_subject
from samebits.compare.unit import Observation, SignalUnit
from samebits.compare.weights import weights
from samebits.records.capture import Capture
from samebits.records.subject import Subject


def _inputs(capture: Capture) -> Iterator[Observation]:
    """Yield every tensor that was fed."""
    for prompt, forward in (capture.signals.forward or {}).items():
        for key, ref in forward.inputs.items():
            yield Observation(ref.hash, "inputs", Subject(prompt=prompt, tensor=key))


def _weights(capture: Capture) -> Iterator[Observation]:
    """Yield every stored tensor of the model."""
    if capture.signals.weights is not None:
        for name, weight in capture.signals.weights.tensors.items():
            yield Observation(weight.ref.hash, "weights", Subject(tensor=name))


def _buffers(capture: Capture) -> Iterator[Observation]:
    """Yield every non-persistent buffer after the load."""
    for name, buffer in (capture.signals.buffers or {}).items():
        yield Observation(buffer.ref.hash, "buffers", Subject(tensor=name))


def _inv_freq(capture: Capture) -> Iterator[Observation]:
    """Yield every table of rotary frequencies, with the scaling of attention."""
    for name, table in (capture.signals.inv_freq or {}).items():
        identity = (table.ref.hash, repr(table.attention_scaling))
        yield Observation(identity, "inv_freq", Subject(tensor=name))


def _hidden_states(capture: Capture) -> Iterator[Observation]:
    """Yield the output of every layer at every position."""
    for prompt, forward in (capture.signals.forward or {}).items():
        for index, layer in enumerate(forward.hidden_states):
            padded = forward if layer.padded else None
            subject = Subject(prompt=prompt, layer=index, tensor=layer.name)
            yield Observation(layer.ref.hash, "hidden_states", subject, layer.ref, padded)


def _logits(capture: Capture) -> Iterator[Observation]:
    """Yield the logits of every prompt at every position."""
    for prompt, forward in (capture.signals.forward or {}).items():
        if forward.logits is not None:
            ref, padded = forward.logits, forward if forward.logits_padded else None
            yield Observation(ref.hash, "logits", Subject(prompt=prompt), ref, padded)


def _decode(capture: Capture) -> Iterator[Observation]:
    """Yield the logits of every decoded row, through the KV cache."""
    signals = capture.signals
    for row, facts in (signals.greedy or {}).items():
        hashed = facts.logits.hash if facts.logits is not None else None
        subject = row_subject(row, signals.forward or {})
        yield Observation((repr(facts.top2), hashed), "decode", subject)


def _greedy(capture: Capture) -> Iterator[Observation]:
    """Yield the generated tokens of every row."""
    signals = capture.signals
    for row, facts in (signals.greedy or {}).items():
        yield Observation(facts.ids, "greedy", row_subject(row, signals.forward or {}))


def _state(_capture: Capture) -> Iterator[Observation]:
    """Yield nothing: only run a observes it, so the two runs have nothing to agree on."""
    return iter(())


_of_outputs = partial(named.observations, other_outputs.NAME)
_DECODED = frozenset({"decode", "greedy", "forward"})

UNITS = (
    SignalUnit("inputs", 10, inputs, _inputs, frozenset({"inputs", "forward"})),
    SignalUnit("weights", 20, weights, _weights, frozenset({"weights"})),
    SignalUnit("buffers", 30, buffers, _buffers, frozenset({"buffers"})),
    SignalUnit("inv_freq", 40, inv_freq, _inv_freq, frozenset({"inv_freq", "buffers"})),
    SignalUnit(
        "hidden_states",
        50,
        hidden_states,
        _hidden_states,
        frozenset({"hidden_states", "inputs", "forward"}),
    ),
    SignalUnit("logits", 60, logits, _logits, frozenset({"logits", "inputs", "forward"})),
    SignalUnit(
        other_outputs.NAME,
        62,
        other_outputs.outputs,
        _of_outputs,
        frozenset({other_outputs.NAME, "inputs", "forward"}),
    ),
    SignalUnit("decode", 70, decode, _decode, _DECODED),
    SignalUnit("greedy", 80, greedy, _greedy, _DECODED),
    SignalUnit(left.NAME, 90, left.state, _state, frozenset({left.NAME})),
)
"""First in the flow of data first. What a phase recorded by ``observe_tensors`` is a ``named_unit``."""

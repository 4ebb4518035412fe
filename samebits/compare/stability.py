"""Do two runs of one cell agree with each other, down to the padding?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.forwards import real_rows
from samebits.compare.metrics import measure
from samebits.compare.phases import explains, failure_behind, lack, prompt_of, signals_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.pair import TensorSource
    from samebits.records.capture import Capture, Failure, ForwardFacts
    from samebits.records.ids import Signal
    from samebits.records.tensor import TensorRef

PAD_ROWS = " (pad rows)"


class Seen(NamedTuple):
    """Something observed: what must be equal, of which prompt, and where padding lies in it."""

    identity: object
    signal: Signal
    prompt: str | None = None
    ref: TensorRef | None = None
    padded: ForwardFacts | None = None
    """The forward, if dimension 1 of ``ref`` is the axis of its padding."""


def disagreements(a: Capture, b: Capture, values: TensorSource | None = None) -> tuple[str, ...]:
    """Return the names of all that differs between two runs of one cell.

    A name begins with its signal, such as ``buffers model.mask``. Padding counts too: what
    is unstable there reads memory that nothing wrote. With ``values`` it is named apart, as
    ``logits long (pad rows)``. What a run lacks for a reason of its own (it ended early, a phase
    raised, something was left out) is no disagreement; that a phase raised in one run alone is.
    """
    if {a.status, b.status} - {"complete", "unfinished"} and a.status != b.status:
        return (f"status: {a.status} in run {a.run}, {b.status} in run {b.run}",)
    first, second = dict(_observed(a)), dict(_observed(b))
    ended = {run.run for run in (a, b) if lack(run) is not None}
    names = []
    for name in first | second:
        one, other = first.get(name), second.get(name)
        if one is None or other is None:
            seen, run = (one, b) if other is None else (other, a)
            assert seen is not None
            if run.run not in ended and not _lacks_for_a_reason(run, seen):
                names.append(name)
        elif one.identity != other.identity:
            names.append(name + (PAD_ROWS if _only_padding(one, other, values) else ""))
    sides = ((a, b), (b, a))
    raised = (name for run, twin in sides if not ended for name in _raised_once(run, twin))
    crashed = (name for run, twin in sides for name in _crashed_once(run, twin))
    return (*names, *raised, *crashed)


def _lacks_for_a_reason(run: Capture, seen: Seen) -> bool:
    """Return True if what ``run`` did not observe says nothing of the model.

    A question that has no meaning for the model (a plain skip) has none in either run.
    """
    if failure_behind(run, seen.signal, seen.prompt) is not None:
        return True
    return any(
        skip.why != "plain"
        and (skip.what == f"prompt {seen.prompt}" or _speaks_of(skip.what, seen))
        for skip in run.skips
    )


def _speaks_of(what: str, seen: Seen) -> bool:
    of = what.replace(":", " ").partition(" ")[2].strip()
    return seen.signal in signals_of(what) and of in ("", seen.prompt)


def _raised_once(run: Capture, twin: Capture) -> Iterator[str]:
    """Yield the phases that raised in ``run`` and went well in the other run."""
    for failure in run.failures:
        signals = signals_of(failure.phase)
        if failure.may_be_the_machine or not signals or not _went_well(failure, twin):
            continue
        yield f"{_named(failure.phase)} (raised {failure.type} in run {run.run} alone)"


def _crashed_once(run: Capture, twin: Capture) -> Iterator[str]:
    """Yield the phase in which ``run`` ended by what it did itself, and which went well in the other.

    A clock, or want of memory, leaves no exception.
    """
    phase = run.unfinished.phase if run.unfinished is not None else ""
    crash = next((f for f in run.failures if f.phase == phase and not f.may_be_the_machine), None)
    if crash is None or explains(phase):
        return
    if twin.status == "complete" and _went_well(crash, twin):
        where = _named(phase) if signals_of(phase) else f"status: phase {phase}"
        yield f"{where} (ended in run {run.run} alone: {crash.in_short})"


def _named(phase: str) -> str:
    """Return a phase by its signal and prompt, such as ``logits short``."""
    word, _, prompt = phase.removeprefix("trace ").partition(" ")
    signal = {"forward": "logits"}.get(word, word)
    return f"{signal} {prompt or 'all'}"


def _went_well(failure: Failure, twin: Capture) -> bool:
    """Return True if the phase did not raise in ``twin``, and was not left out there."""
    prompt = failure.phase.removeprefix("trace ").partition(" ")[2] or None
    if any(f.phase == failure.phase for f in twin.failures):
        return False
    asked = [Seen("", signal, prompt) for signal in signals_of(failure.phase)]
    return not any(_lacks_for_a_reason(twin, seen) for seen in asked)


def never_written(capture: Capture) -> tuple[str, ...]:
    """Return the names of the tensors that hold what the heap was filled with before the load."""
    weights, buffers = capture.signals.weights, capture.signals.buffers or {}
    tensors = weights.tensors if weights is not None else {}
    named = [f"weights {name}" for name, facts in tensors.items() if facts.origin == "unwritten"]
    return (*named, *(f"buffers {name}" for name, facts in buffers.items() if facts.unwritten))


def _observed(capture: Capture) -> Iterator[tuple[str, Seen]]:
    """Yield everything that bears on a verdict, by name."""
    signals = capture.signals
    if signals.weights is not None:
        for name, weight in signals.weights.tensors.items():
            yield f"weights {name}", Seen(weight.ref.hash, "weights")
    for name, buffer in (signals.buffers or {}).items():
        yield f"buffers {name}", Seen(buffer.ref.hash, "buffers")
    for name, found in (signals.inv_freq or {}).items():
        yield f"inv_freq {name}", Seen((found.ref.hash, repr(found.attention_scaling)), "inv_freq")
    for prompt, forward in (signals.forward or {}).items():
        yield from _forward(prompt, forward)
    for row, greedy in (signals.greedy or {}).items():
        prompt = prompt_of(row, signals.forward or {})
        logits = greedy.logits.hash if greedy.logits is not None else None
        yield f"decode {row}", Seen((repr(greedy.top2), logits), "decode", prompt)
        yield f"greedy {row}", Seen(greedy.ids, "greedy", prompt)


def _forward(prompt: str, forward: ForwardFacts) -> Iterator[tuple[str, Seen]]:
    for key, ref in forward.inputs.items():
        yield f"inputs {prompt} · {key}", Seen(ref.hash, "inputs", prompt)
    for index, layer in enumerate(forward.hidden_states):
        padded = forward if layer.padded else None
        seen = Seen(layer.ref.hash, "hidden_states", prompt, layer.ref, padded)
        yield f"hidden_states {prompt} · layer {index} ({layer.name})", seen
    if forward.logits is not None:
        ref, padded = forward.logits, forward if forward.logits_padded else None
        yield f"logits {prompt}", Seen(ref.hash, "logits", prompt, ref, padded)


def _only_padding(one: Seen, other: Seen, values: TensorSource | None) -> bool:
    """Return True if the real rows of both are known to agree."""
    a, b = one.ref, other.ref
    if values is None or a is None or b is None or one.padded is None or other.padded is None:
        return False
    mask = real_rows(one.padded, a)
    if mask is None or one.padded.real_rows != other.padded.real_rows:
        return False
    if (a.shape, a.dtype) != (b.shape, b.dtype) or not (values.has(a) and values.has(b)):
        return False
    return not measure(values.tensor(a), values.tensor(b), rows=mask).n_differ

"""Do two runs of one cell agree with each other, down to the padding?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.comparing.forwards import real_rows
from samebits.metrics import measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.capture import Capture, ForwardFacts
    from samebits.comparing.pair import TensorSource
    from samebits.tensor import TensorRef

PAD_ROWS = " (pad rows)"


class Seen(NamedTuple):
    """Something observed: what must be equal, and where padding lies in it."""

    identity: object
    ref: TensorRef | None = None
    padded: ForwardFacts | None = None
    """The forward, if dimension 1 of ``ref`` is the axis of its padding."""


def disagreements(a: Capture, b: Capture, values: TensorSource | None = None) -> tuple[str, ...]:
    """Return the names of all that differs between two runs of one cell.

    A name begins with its signal, such as ``buffers model.mask``. Padding counts too: what
    is unstable there reads memory that nothing wrote. With ``values`` it is told apart, as
    ``logits long (pad rows)``.
    """
    if a.status != b.status:
        return (f"status: {a.status} in run {a.run}, {b.status} in run {b.run}",)
    mine, theirs = dict(_observed(a)), dict(_observed(b))
    nothing = Seen("not observed")
    pairs = {name: (mine.get(name, nothing), theirs.get(name, nothing)) for name in mine | theirs}
    return tuple(
        name + (PAD_ROWS if _only_padding(one, other, values) else "")
        for name, (one, other) in pairs.items()
        if one.identity != other.identity
    )


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
            yield f"weights {name}", Seen(weight.ref.hash)
    for name, buffer in (signals.buffers or {}).items():
        yield f"buffers {name}", Seen(buffer.ref.hash)
    for name, found in (signals.inv_freq or {}).items():
        yield f"inv_freq {name}", Seen((found.ref.hash, repr(found.attention_scaling)))
    for prompt, forward in (signals.forward or {}).items():
        yield from _forward(prompt, forward)
    for prompt, greedy in (signals.greedy or {}).items():
        logits = greedy.logits.hash if greedy.logits is not None else None
        yield f"decode {prompt}", Seen((repr(greedy.top2), logits))
        yield f"greedy {prompt}", Seen(greedy.ids)


def _forward(prompt: str, forward: ForwardFacts) -> Iterator[tuple[str, Seen]]:
    for key, ref in forward.inputs.items():
        yield f"inputs {prompt} · {key}", Seen(ref.hash)
    for index, layer in enumerate(forward.hidden_states):
        seen = Seen(layer.ref.hash, layer.ref, forward if layer.padded else None)
        yield f"hidden_states {prompt} · layer {index} ({layer.name})", seen
    if forward.logits is not None:
        ref = forward.logits
        yield f"logits {prompt}", Seen(ref.hash, ref, forward if forward.logits_padded else None)


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

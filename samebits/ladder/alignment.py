"""Do two sides round differently because their weights begin at other places in memory?

Some kernels do. The shortest prompt that differs is computed once more with every tensor aligned;
the same bytes on both sides then are an answer, other bytes leave the question to the other causes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.compare.forwards import real_rows
from samebits.compare.outcome import differs
from samebits.ladder.distance import apart
from samebits.records.ladder import Alignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from samebits.ladder.steps import Climb
    from samebits.records.capture import Capture, ForwardFacts
    from samebits.records.comparison import SignalComparison
    from samebits.records.ids import Signal
    from samebits.records.tensor import TensorRef


def to_align(reference: Capture, signals: Iterable[SignalComparison]) -> str:
    """Return what both sides are to compute once more, such as ``forward short``; '' for nothing.

    A decode takes many forwards and is asked only where no forward shows a difference.
    """
    if reference.cell.variant.device != "cpu":
        return ""
    forwards = reference.signals.forward or {}
    told = tuple(signals)
    for kind, signal in _KINDS.items():
        names = [_prompt(name, forwards) for name in _differing(told, signal)]
        if known := [name for name in names if name in forwards]:
            return f"{kind} {min(known, key=lambda name: _size(forwards[name]))}"
    return ""


_KINDS: dict[str, Signal] = {"forward": "logits", "decode": "decode"}


def alignment(climb: Climb) -> Alignment | None:
    """Return what aligned tensors say of a pair; None where nothing was moved."""
    one, other = (file.aligned for file in climb.files)
    if one is None or other is None or one.what != other.what or not (one.off or other.off):
        return None
    off, sides = (one.off, other.off), (("reference", one), ("here", other))
    for where, found in sides:
        if found.refused:
            return Alignment(what=one.what, off=off, same=None, note=f"{where}: {found.refused}")
        if not found.repeats:
            note = f"{where}: the prompt gives other bits when it is fed once more"
            return Alignment(what=one.what, off=off, same=None, note=note)
    if not one.refs or one.refs.keys() != other.refs.keys():
        note = "one side has no logits of it"
        return Alignment(what=one.what, off=off, same=None, note=note)
    same = all(_same(climb, one.refs[name], other.refs[name], name) for name in one.refs)
    return Alignment(what=one.what, off=off, same=same)


def alignment_reason(found: Alignment) -> str:
    """Return what is said of a difference that goes away with aligned tensors."""
    kind, _, prompt = found.what.partition(" ")
    told = "forward over" if kind == "forward" else "decode of"
    return (
        "the weights begin at other alignments in memory: with every parameter copied to a multiple "
        f"of 64 bytes both releases give the same bytes in the {told} {prompt}"
    )


def _same(climb: Climb, one: TensorRef, other: TensorRef, name: str) -> bool:
    """Return True if two logits hold the same bytes in all rows that are no padding."""
    if one == other:
        return True
    rows: NDArray[np.bool_] | None = None
    facts = (climb.pair.reference.signals.forward or {}).get(name)
    if facts is not None and facts.logits_padded:
        rows = real_rows(facts, one)
    found = apart(one, other, climb.pair.values, rows)
    return found is not None and one.dtype == other.dtype and found.same_values


def _differing(signals: Iterable[SignalComparison], name: Signal) -> list[str]:
    items = (item for signal in signals if signal.signal == name for item in signal.items)
    return [item.name for item in items if differs(item)]


def _prompt(name: str, forwards: dict[str, ForwardFacts]) -> str:
    """Return the prompt that ``padded[1]`` is a row of."""
    return name if name in forwards else re.sub(r"\[\d+\]$", "", name)


def _size(facts: ForwardFacts) -> tuple[bool, int]:
    """Return by what prompts are chosen: those without padding first, then the shortest."""
    return facts.real_rows is not None, sum(ref.numel for ref in facts.inputs.values())

"""Whether two sides round differently because their weights are aligned differently in memory.

Some kernels do. The shortest prompt that differs is computed again with every tensor aligned. Equal
bytes on both sides then decide; different bytes leave the other causes open.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from samebits.compare.forwards import real_rows
from samebits.compare.outcome import differing_items
from samebits.compare.phases import word_and_prompt
from samebits.ladder.distance import tensor_distance
from samebits.ladder.steps import Climb
from samebits.records.capture import Capture, ForwardFacts
from samebits.records.comparison import SignalComparison
from samebits.records.ids import Signal
from samebits.records.ladder import Aligned, Alignment
from samebits.records.tensor import TensorRef


def to_align(reference: Capture, signals: Iterable[SignalComparison]) -> str:
    """Return what both sides should compute again, such as ``forward short``; '' for nothing.

    A decode takes many forwards, so it is chosen only if no forward shows a difference.
    """
    if reference.cell.variant.device != "cpu":
        return ""
    forwards = reference.signals.forward or {}
    all_signals = tuple(signals)
    for kind, signal in _SIGNAL_OF_KIND.items():
        names = [item.subject.prompt for item in differing_items(all_signals, signal)]
        if prompts := [name for name in names if name in forwards]:
            return f"{kind} {min(prompts, key=lambda name: _sort_key(forwards[name]))}"
    return ""


_SIGNAL_OF_KIND: dict[str, Signal] = {"forward": "logits", "decode": "decode"}


def alignment(climb: Climb) -> Alignment | None:
    """Return the result with aligned tensors for a pair; None if no tensor was moved."""
    reference, candidate = _same_computation(climb)
    if reference is None or candidate is None or not (reference.off or candidate.off):
        return None
    off, sides = (
        (reference.off, candidate.off),
        (("reference", reference), ("this cell", candidate)),
    )
    for where, result in sides:
        if result.refused:
            return Alignment(
                what=reference.what, off=off, same=None, note=f"{where}: {result.refused}"
            )
        if not result.repeats:
            note = f"{where}: a second forward of the prompt gives different bits"
            return Alignment(what=reference.what, off=off, same=None, note=note)
    if not reference.refs or reference.refs.keys() != candidate.refs.keys():
        note = "one side has no logits for it"
        return Alignment(what=reference.what, off=off, same=None, note=note)
    same = all(
        _same_real_rows(climb, reference.refs[name], candidate.refs[name], name)
        for name in reference.refs
    )
    return Alignment(what=reference.what, off=off, same=same)


def _same_computation(climb: Climb) -> tuple[Aligned | None, Aligned | None]:
    """Return both results of what was asked of this pair; a reference also answers other pairs."""
    references, candidates = (file.aligned for file in climb.files)
    by_name = {aligned.what: aligned for aligned in references}
    candidate = next((aligned for aligned in candidates if aligned.what in by_name), None)
    return (None, None) if candidate is None else (by_name[candidate.what], candidate)


def alignment_reason(result: Alignment) -> str:
    """Return the reason for a difference that vanishes with aligned tensors."""
    kind, prompt = word_and_prompt(result.what)
    computation = "forward over" if kind == "forward" else "decode of"
    return (
        "the weights have different alignments in memory: with every parameter copied to a multiple "
        f"of 64 bytes, both releases give the same bytes in the {computation} {prompt}"
    )


def _same_real_rows(climb: Climb, reference: TensorRef, candidate: TensorRef, name: str) -> bool:
    """Return True if two logits hold the same bytes in all rows that are not padding."""
    if reference == candidate:
        return True
    rows: NDArray[np.bool_] | None = None
    facts = (climb.pair.reference.signals.forward or {}).get(name)
    if facts is not None and facts.logits_padded:
        rows = real_rows(facts, reference)
    distance = tensor_distance(reference, candidate, climb.pair.values, rows)
    return distance is not None and reference.dtype == candidate.dtype and distance.same_values


def _sort_key(facts: ForwardFacts) -> tuple[bool, int]:
    """Return the key that sorts prompts: those without padding first, then the shortest."""
    return facts.real_rows is not None, sum(ref.numel for ref in facts.inputs.values())

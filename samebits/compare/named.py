"""Signals that are a set of named tensors, as Session.observe_tensors of the probes records them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.compare.pair import Pair
    from samebits.records.capture import Capture
    from samebits.records.comparison import ItemComparison, SignalComparison
    from samebits.records.ids import Signal
    from samebits.records.tensor import TensorRef


def named_signal(name: Signal, order: int, phases: Iterable[str] = ()) -> SignalUnit:
    """Return the unit of a signal that is compared tensor by tensor, by name.

    ``phases`` are the first words of phases other than ``name`` that it needs.
    """

    def compare(pair: Pair) -> SignalComparison:
        reference, candidate = (_tensors(run, name) for run in (pair.reference, pair.candidate))
        if reference is None or candidate is None:
            return not_observed(
                pair, name, reference=reference is None, candidate=candidate is None
            )
        return signal_comparison(name, _items(pair, reference, candidate))

    def observations(capture: Capture) -> Iterator[Observation]:
        for subject, ref in (_tensors(capture, name) or {}).items():
            yield Observation(ref.hash, name, subject, ref)

    return SignalUnit(name, order, compare, observations, frozenset({name, *phases}))


def _tensors(capture: Capture, name: Signal) -> dict[Subject, TensorRef] | None:
    by_prompt = capture.signals.named.get(name)
    if by_prompt is None:
        return None
    return {
        Subject(prompt=prompt, tensor=tensor): ref
        for prompt, tensors in by_prompt.items()
        for tensor, ref in tensors.items()
    }


def _items(
    pair: Pair, reference: dict[Subject, TensorRef], candidate: dict[Subject, TensorRef]
) -> Iterator[ItemComparison]:
    for subject in {**reference, **candidate}:
        refs = reference.get(subject), candidate.get(subject)
        if refs[0] is None or refs[1] is None:
            yield unpaired(subject, *refs)
        else:
            yield compare_tensors(subject, refs[0], refs[1], pair.values)

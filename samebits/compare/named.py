"""Signals that are a set of named tensors, as Session.observe_tensors of the probes records them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import union
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.compare.unit import Observation, SignalUnit

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

    def observations(capture: Capture) -> Iterator[tuple[str, Observation]]:
        for item, ref in (_tensors(capture, name) or {}).items():
            yield f"{name} {item}", Observation(ref.hash, name, item.partition(" · ")[0], ref)

    return SignalUnit(name, order, compare, observations, frozenset({name, *phases}))


def _tensors(capture: Capture, name: Signal) -> dict[str, TensorRef] | None:
    return capture.signals.named.get(name)


def _items(
    pair: Pair, reference: dict[str, TensorRef], candidate: dict[str, TensorRef]
) -> Iterator[ItemComparison]:
    for item in union(reference, candidate):
        refs = reference.get(item), candidate.get(item)
        if refs[0] is None or refs[1] is None:
            yield unpaired(item, *refs)
        else:
            yield compare_tensors(item, refs[0], refs[1], pair.values)

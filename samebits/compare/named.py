"""Signals of tensors that a phase recorded by ``session.observe_tensors``: by prompt and name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from samebits.compare.forwards import (
    forwards_or_item,
    has_padded_axis,
    not_observed_item,
    output_item,
)
from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import Pair, reason, union, unreadable_items
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.capture import Capture
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef


def named_unit(name: Signal, order: int, *phases: str) -> SignalUnit:
    """Return the unit of a signal that the phase of its name records.

    ``phases`` are first words of other phases without which it is not observed.
    """
    return SignalUnit(
        name,
        order,
        partial(_compare, name),
        partial(observations, name),
        frozenset({name, *phases}),
    )


def named(name: Signal, capture: Capture) -> dict[str, dict[str, TensorRef]]:
    """Return prompt -> name -> tensor of a signal; the prompt '' is the model as it was loaded."""
    return capture.signals.named.get(name, {})


def observations(name: Signal, capture: Capture) -> Iterator[Observation]:
    """Yield every tensor of a signal, on which both runs of a cell must agree."""
    forwards = capture.signals.forward or {}
    for prompt, refs in named(name, capture).items():
        forward = forwards.get(prompt)
        for tensor, ref in refs.items():
            padded = forward if forward is not None and has_padded_axis(forward, ref) else None
            yield Observation(ref.hash, name, Subject(prompt=prompt, tensor=tensor), ref, padded)


def _compare(name: Signal, pair: Pair) -> SignalComparison | None:
    """Compare a signal; None if neither side has it, nor a reason why it is missing."""
    sides = (pair.reference, pair.candidate)
    if any(named(name, side) for side in sides):
        return signal_comparison(name, _items(name, pair))
    if any(reason(side, name) for side in sides):
        return not_observed(pair, name, reference=True, candidate=True)
    return None


def _items(name: Signal, pair: Pair) -> Iterator[ItemComparison]:
    before, after = named(name, pair.reference), named(name, pair.candidate)
    unreadable = {item.subject.tensor: item for item in unreadable_items(pair, name)}
    yield from unreadable.values()
    for prompt in union(before, after):
        if prompt not in before or prompt not in after:
            yield not_observed_item(
                pair,
                name,
                Subject(prompt=prompt),
                reference=prompt not in before,
                candidate=prompt not in after,
            )
            continue
        for tensor in union(before[prompt], after[prompt]):
            if tensor not in unreadable:
                refs = before[prompt].get(tensor), after[prompt].get(tensor)
                yield _item(pair, name, Subject(prompt=prompt, tensor=tensor), *refs)


def _item(
    pair: Pair,
    name: Signal,
    subject: Subject,
    reference: TensorRef | None,
    candidate: TensorRef | None,
) -> ItemComparison:
    if reference is None or candidate is None:
        return unpaired(subject, reference, candidate)
    if not subject.prompt:
        return compare_tensors(subject, reference, candidate, pair.values)
    forwards = forwards_or_item(pair, name, subject.prompt)
    if isinstance(forwards, ItemComparison):
        return forwards
    return output_item(pair, subject, forwards, reference, candidate)

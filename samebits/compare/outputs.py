"""Comparison of the tensors that a forward returns besides the logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from samebits.compare.describe import amount_of
from samebits.compare.forwards import Forwards, forwards_or_item, output_item
from samebits.compare.metrics import measure
from samebits.compare.named import named
from samebits.compare.outcome import has_other_shape, has_other_size, signal_comparison
from samebits.compare.pair import Pair, union
from samebits.compare.tensors import unpaired
from samebits.records.capture import Capture
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.subject import Reason, Subject
from samebits.records.tensor import TensorRef
from samebits.text.numbers import plural

NAME = "outputs"
GONE = "the reference returns it, the candidate does not"
ADDED = "the candidate returns it, the reference does not"
RENAMED = "the same bytes under another name"

Refs = dict[str, "TensorRef"]


class OutputPair(NamedTuple):
    """One output on both sides; a side is None if its forward does not return it."""

    subject: Subject
    reference: TensorRef | None
    candidate: TensorRef | None
    parts: tuple[TensorRef, ...] = ()
    """What a side returns in its place: a list or tuple of tensors, by the name of the one tensor."""


def outputs(pair: Pair) -> SignalComparison | None:
    """Compare the outputs, prompt by prompt; None if both sides return the logits alone."""
    prompts = union(named(NAME, pair.reference), named(NAME, pair.candidate))
    items = [item for prompt in prompts for item in _prompt_items(pair, prompt)]
    return signal_comparison(NAME, items) if items else None


def output_pairs(reference: Capture, candidate: Capture, prompt: str) -> list[OutputPair]:
    """Return the outputs of both forwards over a prompt, by name.

    An output whose name only the reference has is that of another name here, if only this side has
    that name and the bytes are the same. A tensor and a list of tensors of one name are one output.
    """
    first, second = (named(NAME, side).get(prompt, {}) for side in (reference, candidate))
    renamed = _renamed(first, second)
    old = {name: ref for name, ref in first.items() if name not in renamed}
    new = {name: ref for name, ref in second.items() if name not in renamed.values()}
    split, joined = _in_parts(old, new), _in_parts(new, old)
    in_parts = {name for parts in (*split.values(), *joined.values()) for name in parts}
    pairs = []
    for name, ref in first.items():
        if name in in_parts:
            continue
        parts = tuple(second[part] for part in split.get(name, ()))
        counterpart = renamed.get(name, "")
        subject = Subject(prompt=prompt, tensor=name, counterpart=counterpart)
        pairs.append(OutputPair(subject, ref, second.get(counterpart or name), parts))
    paired = {*first, *renamed.values(), *in_parts}
    for name in second:
        if name not in paired:
            parts = tuple(first[part] for part in joined.get(name, ()))
            subject = Subject(prompt=prompt, tensor=name)
            pairs.append(OutputPair(subject, None, second[name], parts))
    return pairs


def _in_parts(side: Refs, opposite: Refs) -> dict[str, list[str]]:
    """Return the name of a tensor of one side -> the names of the tensors in a list of the other."""
    return {
        name: parts
        for name in side
        if name not in opposite
        and (parts := [key for key in opposite if key.startswith(f"{name}[")])
        and parts == [f"{name}[{number}]" for number in range(len(parts))]
        and not any(part in side for part in parts)
    }


def _renamed(first: Refs, second: Refs) -> dict[str, str]:
    """Return the name in the reference -> that of the same bytes in the candidate."""
    renamed: dict[str, str] = {}
    for name, ref in first.items():
        if name in second:
            continue
        same = (
            other
            for other, candidate in second.items()
            if candidate.hash == ref.hash and other not in first and other not in renamed.values()
        )
        if (counterpart := next(same, "")) and ref.numel:
            renamed[name] = counterpart
    return renamed


def _prompt_items(pair: Pair, prompt: str) -> Iterator[ItemComparison]:
    forwards = forwards_or_item(pair, NAME, prompt)
    if isinstance(forwards, ItemComparison):
        yield forwards
        return
    unreadable = [*_unreadable(pair.reference), *_unreadable(pair.candidate)]
    for output in output_pairs(pair.reference, pair.candidate, prompt):
        subject, reference, candidate, parts = output
        if parts:
            yield _regrouped(pair, output)
        elif reference is None or candidate is None:
            yield _one_sided(subject, reference, candidate, unreadable)
        else:
            yield _both(pair, subject, forwards, reference, candidate)


def _regrouped(pair: Pair, output: OutputPair) -> ItemComparison:
    """Return the item of an output that is one tensor on one side and a list of them on the other."""
    subject, reference, candidate, parts = output
    n = f"a list or tuple of {plural(len(parts), 'tensor')}"
    form = f"one tensor instead of {n}" if reference is None else f"{n} instead of one tensor"
    whole = reference or candidate
    assert whole is not None
    note = f"returned as {form}, {_joined_in_words(pair, whole, parts)}"
    item = unpaired(subject, reference, candidate, note)
    return item.model_copy(update={"reason": Reason.REGROUPED})


def _joined_in_words(pair: Pair, whole: TensorRef, parts: tuple[TensorRef, ...]) -> str:
    """Return whether parts hold the bytes of a whole tensor, one after the other."""
    if sum(part.numel for part in parts) != whole.numel:
        return "with a different number of elements"
    if {part.dtype for part in parts} != {whole.dtype}:
        return "in a different dtype"
    if not all(pair.values.has(ref) for ref in (whole, *parts)):
        return "and it is not known whether its bytes are the same, as the values are not stored"
    joined = np.concatenate([pair.values.tensor(part).reshape(-1) for part in parts])
    metrics = measure(pair.values.tensor(whole).reshape(-1), joined)
    if not metrics.n_differ:
        return "with the same bytes"
    return f"with different bytes: {amount_of(metrics)}"


def _both(
    pair: Pair, subject: Subject, forwards: Forwards, reference: TensorRef, candidate: TensorRef
) -> ItemComparison:
    item = output_item(pair, subject, forwards, reference, candidate)
    if subject.counterpart:
        return item.model_copy(update={"note": RENAMED})
    if has_other_shape(item) and not has_other_size(item):
        bytes_of = _joined_in_words(pair, reference, (candidate,))
        return item.model_copy(update={"note": f"{item.note}, {bytes_of}"})
    return item


def _one_sided(
    subject: Subject,
    reference: TensorRef | None,
    candidate: TensorRef | None,
    unreadable: list[str],
) -> ItemComparison:
    """Return the item of an output that one side lacks: one that is gone differs, a new one not."""
    if subject.tensor in unreadable:
        note = "on one side it has no plain bytes"
        return ItemComparison(subject=subject, outcome="not compared", note=note, excused=True)
    is_new = reference is None
    note = ADDED if is_new else GONE
    return unpaired(subject, reference, candidate, note, excused=is_new)


def _unreadable(capture: Capture) -> list[str]:
    """Return the names of outputs that have no plain bytes."""
    return [skip.tensor for skip in capture.skips if skip.tensor_of == NAME]

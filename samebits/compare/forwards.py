"""Comparison of the inputs, hidden states, logits and generated tokens of two runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from samebits.compare.metrics import measure, row_mask
from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import Pair, union
from samebits.compare.phases import row_subject
from samebits.compare.tensors import EMPTY, compare_tensors, dtype_note, unpaired
from samebits.records.capture import EMBEDDINGS, ForwardFacts, GreedyFacts, Layer
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef

T = TypeVar("T")
Forwards = tuple["ForwardFacts", "ForwardFacts"]
LayerPair = tuple[int, "Layer | None", "Layer | None"]

OTHER_INPUTS = "the inputs differ, so what is computed from them cannot be compared"
NO_LAYERS = "the model has no layers to watch"
STEPS_NO_VALUES = (
    "the hashes differ; whether the logits differ before the tokens do is not known, because the "
    "values of both are not stored"
)
AXIS_UNKNOWN = "its padding rows are not known: dimension 1 is not the token axis"


def inputs(pair: Pair) -> SignalComparison:
    """Compare the inputs, prompt by prompt."""
    if _forward_missing(pair):
        return _not_observed(pair, "inputs")
    return _signal_of(pair, "inputs", [i for p in pair.prompts for i in _prompt_inputs(pair, p)])


def hidden_states(pair: Pair) -> SignalComparison:
    """Compare the output of every layer, prompt by prompt, in order of execution."""
    if _forward_missing(pair):
        return _not_observed(pair, "hidden_states")
    items = [i for p in pair.prompts for i in _prompt_layers(pair, p)]
    return _signal_of(pair, "hidden_states", items, show_all=True)


def logits(pair: Pair) -> SignalComparison:
    """Compare the logits, prompt by prompt."""
    if _forward_missing(pair):
        return _not_observed(pair, "logits")
    return _signal_of(pair, "logits", [_prompt_logits(pair, p) for p in pair.prompts])


def greedy(pair: Pair) -> SignalComparison:
    """Compare the generated tokens, prompt by prompt; their logits are the signal decode."""
    return _of_generated(pair, "greedy", _prompt_greedy)


def decode(pair: Pair) -> SignalComparison:
    """Compare the logits of every greedy step, up to the first with different tokens."""
    return _of_generated(pair, "decode", _prompt_decode)


def _of_generated(
    pair: Pair, signal: Signal, of_prompt: Callable[[Pair, str], ItemComparison]
) -> SignalComparison:
    reference, candidate = pair.reference.signals.greedy, pair.candidate.signals.greedy
    if reference is None or candidate is None:
        comparison = not_observed(
            pair, "greedy", reference=reference is None, candidate=candidate is None
        )
        return comparison.model_copy(update={"signal": signal})
    items = [of_prompt(pair, prompt) for prompt in union(reference, candidate)]
    return _signal_of(pair, signal, items)


def split_step(reference: GreedyFacts, candidate: GreedyFacts) -> int | None:
    """Return the first step at which the tokens differ, or at which one side has ended."""
    a, b = reference.ids, candidate.ids
    step = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if step is not None:
        return step
    return None if len(a) == len(b) else min(len(a), len(b))


def same_inputs(pair: Pair, prompt: str) -> bool:
    """Return True unless both sides ran a forward over ``prompt`` with different inputs."""
    reference, candidate = pair.forwards(prompt)
    if reference is None or candidate is None:
        return True
    return _hashes(reference.common_inputs) == _hashes(candidate.common_inputs)


def _hashes(refs: dict[str, TensorRef]) -> dict[str, str]:
    return {key: ref.hash for key, ref in refs.items()}


def _forward_missing(pair: Pair) -> bool:
    return pair.reference.signals.forward is None or pair.candidate.signals.forward is None


def _not_observed(pair: Pair, signal: Signal) -> SignalComparison:
    sides = pair.reference.signals.forward, pair.candidate.signals.forward
    return not_observed(pair, signal, reference=sides[0] is None, candidate=sides[1] is None)


def _signal_of(
    pair: Pair, signal: Signal, items: list[ItemComparison], *, show_all: bool = False
) -> SignalComparison:
    if not items:
        return not_observed(pair, signal, reference=True, candidate=True)
    return signal_comparison(signal, items, show_all=show_all)


def not_observed_item(
    pair: Pair, signal: Signal, subject: Subject, *, reference: bool, candidate: bool
) -> ItemComparison:
    """Return the item of a prompt that was not observed on the sides that are True."""
    note, excused = pair.missing(signal, subject.prompt, reference=reference, candidate=candidate)
    return ItemComparison(subject=subject, outcome="not compared", note=note, excused=excused)


def forwards_or_item(pair: Pair, signal: Signal, prompt: str) -> Forwards | ItemComparison:
    """Return both forwards over a prompt, or the item that says why they are not comparable."""
    return _both_or_item(pair, signal, Subject(prompt=prompt), *pair.forwards(prompt))


def _both_or_item(
    pair: Pair, signal: Signal, subject: Subject, reference: T | None, candidate: T | None
) -> tuple[T, T] | ItemComparison:
    if reference is None or candidate is None:
        return not_observed_item(
            pair, signal, subject, reference=reference is None, candidate=candidate is None
        )
    if signal != "inputs" and not same_inputs(pair, subject.prompt):
        return _with_other_inputs(subject)
    return reference, candidate


def _with_other_inputs(subject: Subject) -> ItemComparison:
    return ItemComparison(subject=subject, outcome="not compared", note=OTHER_INPUTS, excused=True)


def _prompt_inputs(pair: Pair, prompt: str) -> Iterator[ItemComparison]:
    forwards = forwards_or_item(pair, "inputs", prompt)
    if isinstance(forwards, ItemComparison):
        yield forwards
        return
    reference, candidate = forwards[0].common_inputs, forwards[1].common_inputs
    for key in union(reference, candidate):
        subject = Subject(prompt=prompt, tensor=key)
        if key in reference and key in candidate:
            yield compare_tensors(subject, reference[key], candidate[key], pair.values)
        else:
            note = "fed to one side only"
            yield unpaired(subject, reference.get(key), candidate.get(key), note)


def _prompt_logits(pair: Pair, prompt: str) -> ItemComparison:
    forwards = forwards_or_item(pair, "logits", prompt)
    if isinstance(forwards, ItemComparison):
        return forwards
    reference, candidate = forwards[0].logits, forwards[1].logits
    subject = Subject(prompt=prompt)
    if reference is None or candidate is None:
        return not_observed_item(
            pair, "logits", subject, reference=reference is None, candidate=candidate is None
        )
    is_padded = forwards[0].logits_padded and forwards[1].logits_padded
    tokens = forwards[0].tokens | forwards[1].tokens
    return _output_item(
        pair, subject, forwards, reference, candidate, is_padded=is_padded, tokens=tokens
    )


def _output_item(
    pair: Pair,
    subject: Subject,
    forwards: Forwards,
    reference: TensorRef,
    candidate: TensorRef,
    *,
    is_padded: bool,
    tokens: dict[str, str] | None = None,
) -> ItemComparison:
    """Compare two outputs of a forward, its padding separately; with ``tokens`` they are logits."""
    real = real_rows(forwards[0], reference) if is_padded else None
    if real is None and reference.hash != candidate.hash and may_hide_padding(forwards, reference):
        return ItemComparison(
            subject=subject,
            outcome="not compared",
            reference=reference,
            candidate=candidate,
            note=AXIS_UNKNOWN,
            excused=True,
        )
    return compare_tensors(
        subject,
        reference,
        candidate,
        pair.values,
        real=real,
        logits=tokens is not None,
        tokens=tokens,
        positions=True,
    )


def output_item(
    pair: Pair, subject: Subject, forwards: Forwards, reference: TensorRef, candidate: TensorRef
) -> ItemComparison:
    """Compare a tensor that both forwards return besides the logits."""
    is_padded = all(
        has_padded_axis(forward, ref)
        for forward, ref in zip(forwards, (reference, candidate), strict=True)
    )
    return _output_item(pair, subject, forwards, reference, candidate, is_padded=is_padded)


def has_padded_axis(forward: ForwardFacts, ref: TensorRef) -> bool:
    """Return True if dimension 1 of an output is as long as the prompt with its padding."""
    ids = forward.inputs.get("input_ids")
    if ids is None or len(ids.shape) < 2:
        return False
    return len(ref.shape) >= 2 and ref.shape[1] == ids.shape[1]


def real_rows(forward: ForwardFacts, ref: TensorRef) -> NDArray[np.bool_] | None:
    """Return the mask [batch, positions] of the rows without padding; None without such axes.

    An output [batch, n] gets no mask: n may count labels as well as positions.
    """
    ranges = forward.real_rows
    if ranges is None or len(ref.shape) < 3 or ref.shape[0] != len(ranges):
        return None
    if any(stop > ref.shape[1] for _, stop in ranges):
        return None
    return row_mask(ranges, ref.shape)


def may_hide_padding(forwards: Forwards, ref: TensorRef) -> bool:
    """Return True if an axis is as long as the padded prompt, or as all its rows together.

    An output without such an axis, like one row of scores for each text, holds no padding.
    """
    ranges = forwards[0].real_rows
    if ranges is None:
        return False
    widths = {ref.shape[1] for ref in forwards[0].inputs.values() if len(ref.shape) == 2}
    widths.add(max(stop for _, stop in ranges))
    lengths = widths | {width * len(ranges) for width in widths}
    return any(n in lengths for n in ref.shape)


def _prompt_layers(pair: Pair, prompt: str) -> Iterator[ItemComparison]:
    forwards = forwards_or_item(pair, "hidden_states", prompt)
    if isinstance(forwards, ItemComparison):
        yield forwards
        return
    layers = forwards[0].hidden_states, forwards[1].hidden_states
    subject = Subject(prompt=prompt)
    if not layers[0] and not layers[1]:
        note, has_reason = pair.missing("hidden_states", prompt, reference=True, candidate=True)
        note = note if has_reason else NO_LAYERS
        yield ItemComparison(subject=subject, outcome="not compared", note=note, excused=True)
        return
    if not layers[0] or not layers[1]:
        yield not_observed_item(
            pair, "hidden_states", subject, reference=not layers[0], candidate=not layers[1]
        )
        return
    for index, reference, candidate in layer_pairs(*layers):
        yield _layer_item(pair, prompt, forwards, index, reference, candidate)


def _layer_item(
    pair: Pair,
    prompt: str,
    forwards: Forwards,
    index: int,
    reference: Layer | None,
    candidate: Layer | None,
) -> ItemComparison:
    subject = layer_subject(prompt, index, reference, candidate)
    if reference is None or candidate is None:
        refs = reference.ref if reference else None, candidate.ref if candidate else None
        return unpaired(subject, *refs, "a layer that the other side does not have", excused=True)
    is_padded = reference.padded and candidate.padded
    return _output_item(pair, subject, forwards, reference.ref, candidate.ref, is_padded=is_padded)


def layer_subject(
    prompt: str, index: int, reference: Layer | None, candidate: Layer | None
) -> Subject:
    """Return the subject of a layer in one forward; None is a side without the layer."""
    names = dict.fromkeys(layer.name for layer in (reference, candidate) if layer is not None)
    tensor, counterpart = (*names, "")[:2]
    return Subject(prompt=prompt, layer=index, tensor=tensor, counterpart=counterpart)


def layer_pairs(reference: tuple[Layer, ...], candidate: tuple[Layer, ...]) -> list[LayerPair]:
    """Pair layers by position, or by name if the positions are not reliable.

    Positions are reliable if the counts are equal and no name is at two different positions. Of two names at one
    position, outputs of different shapes are no pair: RT-DETR of 5.3 has a list of AIFI layers, which give images,
    where 5.0 has one of encoders, which give sequences.
    """
    reference_names = _with_occurrences([layer.name for layer in reference])
    candidate_names = _with_occurrences([layer.name for layer in candidate])
    positions = {name: position for position, name in enumerate(candidate_names)}
    moved = any(
        positions.get(name, position) != position for position, name in enumerate(reference_names)
    )
    pairs: list[LayerPair] = []
    if len(reference_names) == len(candidate_names) and not moved:
        for i, (a, b) in enumerate(zip(reference, candidate, strict=True)):
            is_pair = a.name == b.name or a.ref.shape == b.ref.shape
            pairs += [(i, a, b)] if is_pair else [(i, a, None), (i, None, b)]
        return pairs
    matched = {
        position: positions[name]
        for position, name in enumerate(reference_names)
        if name in positions
    }
    matched |= _matched_tails(reference, candidate, matched)
    _drop_inputs_of_others(reference, candidate, matched)
    pairs = [
        (position, layer, candidate[matched[position]] if position in matched else None)
        for position, layer in enumerate(reference)
    ]
    taken = set(matched.values())
    return [*pairs, *((i, None, layer) for i, layer in enumerate(candidate) if i not in taken)]


def _drop_inputs_of_others(
    reference: tuple[Layer, ...], candidate: tuple[Layer, ...], matched: dict[int, int]
) -> None:
    """Leave the embeddings unmatched if they have other shapes, and go into layers that are not each other's.

    They are the input of the first layer that runs, and a release may run another tower first.
    """
    places = {place: position for position, place in matched.items()}
    for position, layer in enumerate(reference):
        if layer.name != EMBEDDINGS or position not in matched:
            continue
        place = matched[position]
        if layer.ref.shape == candidate[place].ref.shape:
            continue
        of_reference, of_candidate = matched.get(position + 1), places.get(place + 1)
        if of_reference not in (None, place + 1) or of_candidate not in (None, position + 1):
            del matched[position]


def _matched_tails(
    reference: tuple[Layer, ...], candidate: tuple[Layer, ...], matched: dict[int, int]
) -> dict[int, int]:
    """Match the remaining layers by the end of the name, if it is unique on each side."""
    reference_tails = [(i, _name_tail(b.name)) for i, b in enumerate(reference) if i not in matched]
    matched_candidates = set(matched.values())
    candidate_tails = [
        (i, _name_tail(b.name)) for i, b in enumerate(candidate) if i not in matched_candidates
    ]
    unique = _unique_tails(candidate_tails)
    return {
        place: unique[tail]
        for tail, place in _unique_tails(reference_tails).items()
        if tail in unique
    }


def _unique_tails(tails: list[tuple[int, str]]) -> dict[str, int]:
    counts = Counter(tail for _, tail in tails)
    return {tail: place for place, tail in tails if counts[tail] == 1}


def _with_occurrences(names: list[str]) -> list[tuple[str, int]]:
    """Return each name with its number of earlier occurrences.

    A layer that is shared runs several times.
    """
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        numbered.append((name, counts[name]))
        counts[name] += 1
    return numbered


def _name_tail(name: str) -> str:
    """Return the last part of a name, with the word before it if it is a number."""
    match = re.search(r"[^.]+(\.\d+)*$", name)
    return match.group() if match else name


def _prompt_greedy(pair: Pair, name: str) -> ItemComparison:
    subject = row_subject(name, pair.prompts)
    generated = _greedy_or_item(pair, subject)
    if isinstance(generated, ItemComparison):
        return generated
    reference, candidate = generated
    if not reference.ids and not candidate.ids:
        note = "no tokens were generated"
        return ItemComparison(subject=subject, outcome="not compared", note=note)
    step = split_step(reference, candidate)
    if step is None:
        return ItemComparison(subject=subject, outcome="identical")
    note = f"step {step}: {_token(reference, step)} in the reference, "
    note += f"{_token(candidate, step)} in the candidate"
    return ItemComparison(subject=subject, outcome="differs", note=note)


def _prompt_decode(pair: Pair, name: str) -> ItemComparison:
    subject = row_subject(name, pair.prompts)
    generated = _greedy_or_item(pair, subject)
    if isinstance(generated, ItemComparison):
        return generated
    reference, candidate = generated[0].logits, generated[1].logits
    if reference is None or candidate is None:
        note = "the logits of the steps were not recorded"
        return ItemComparison(subject=subject, outcome="not compared", note=note, excused=True)
    step = split_step(*generated)
    if step is None or reference.hash == candidate.hash:
        return compare_tensors(subject, reference, candidate, pair.values, logits=True, tokens={})
    return _up_to_split(pair, subject, reference, candidate, step)


def _up_to_split(
    pair: Pair, subject: Subject, reference: TensorRef, candidate: TensorRef, step: int
) -> ItemComparison:
    """Compare the steps up to ``step``: after it both sides continue with different tokens."""
    if reference.shape[1:] != candidate.shape[1:]:
        return compare_tensors(subject, reference, candidate, pair.values, logits=True, tokens={})
    item = ItemComparison(
        subject=subject, outcome="not compared", reference=reference, candidate=candidate
    )
    n_steps = min(step + 1, reference.shape[0], candidate.shape[0])  # one side may have ended
    if not n_steps:
        return item.model_copy(update={"note": EMPTY, "excused": True})
    if not (pair.values.has(reference) and pair.values.has(candidate)):
        return item.model_copy(update={"note": STEPS_NO_VALUES})
    reference_steps, candidate_steps = (
        pair.values.tensor(ref)[:n_steps] for ref in (reference, candidate)
    )
    metrics = measure(reference_steps, candidate_steps, logits=True)
    notes = [dtype_note(item), f"up to step {step}, where the tokens differ"]
    item = item.model_copy(update={"note": "; ".join(filter(None, notes))})
    if not metrics.n_differ and reference.dtype == candidate.dtype:
        return item.model_copy(update={"outcome": "identical"})
    return item.model_copy(update={"outcome": "differs", "metrics": metrics})


def _greedy_or_item(
    pair: Pair, subject: Subject
) -> tuple[GreedyFacts, GreedyFacts] | ItemComparison:
    """Return what both sides generated, or the item that says why it is not comparable."""
    reference = (pair.reference.signals.greedy or {}).get(subject.prompt_row)
    candidate = (pair.candidate.signals.greedy or {}).get(subject.prompt_row)
    return _both_or_item(pair, "greedy", subject, reference, candidate)


def _token(facts: GreedyFacts, step: int) -> str:
    return f"token {facts.ids[step]}" if step < len(facts.ids) else "the end"

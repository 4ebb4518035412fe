"""Distances of two cells on every rung, tensor by tensor, and the judgement of their slope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from samebits.compare.forwards import (
    has_padded_axis,
    layer_pairs,
    layer_subject,
    may_hide_padding,
    real_rows,
    same_inputs,
)
from samebits.compare.outputs import output_pairs
from samebits.compare.pair import Pair
from samebits.compare.phases import row_subject
from samebits.compare.probes import canonical, same_fact
from samebits.compare.standing import LEAKED, NOT_FINITE, PARTLY, judged
from samebits.ladder.distance import Distance, own_errors, tensor_distance
from samebits.records.capture import ForwardFacts, Layer
from samebits.records.ids import Signal
from samebits.records.ladder import Kind, LadderFile, LadderStep, Rung, RungName
from samebits.records.subject import Reason, Subject
from samebits.records.tensor import TensorRef
from samebits_wire.rounding import shrinks

ZEROS = "the values are equal: only signs of zeros or bits of NaN differ"
NO_FACT = "a fact that was not computed in float64"
SAME_FACT = (
    "the fact is the same in float64: a choice that rounding flips, or one that depends on the "
    "dtype; a probe that returns the tensor it is made from can tell"
)
HIDDEN = "hidden in the variant's dtype, in which both sides have the same numbers"

_FLOAT32_SHARE = {"bfloat16": 2.0**-15, "float16": 2.0**-13}
"""Dtype -> the unit roundoff of float32 (2**-24, IEEE 754), in that of the dtype (2**-9, 2**-11)."""

Refs = tuple["TensorRef | None", "TensorRef | None"]


@dataclass(frozen=True)
class Climb:
    """A pair of cells, and the results of both on the rungs."""

    pair: Pair
    files: tuple[LadderFile, LadderFile]

    @property
    def dtype(self) -> str:
        """The variant's dtype."""
        return self.pair.reference.cell.variant.dtype

    def rungs(self, name: RungName) -> tuple[Rung | None, Rung | None]:
        """Return a rung of both sides; for a float32 variant, float32 is the native rung."""
        if name == "float32" and self.dtype == "float32":
            name = "own"
        return self.files[0].rungs.get(name), self.files[1].rungs.get(name)

    @property
    def leaks(self) -> tuple[str, ...]:
        """Operations on the float64 rung of either side with less than float64 precision."""
        leaks_of_sides = [rung.leaks for rung in self.rungs("float64") if rung is not None]
        return tuple(sorted({leak for leaks in leaks_of_sides for leak in leaks}))


class Tensor(NamedTuple):
    """One tensor of a pair on every rung, and the mask of its real rows."""

    signal: Signal
    subject: Subject
    own: Refs
    rungs: dict[RungName, Refs]
    rows: NDArray[np.bool_] | None


def steps(climb: Climb) -> tuple[LadderStep, ...]:
    """Return the steps to report of every prompt.

    These are the layer where the difference starts, the layer that shrinks least if that one does
    not shrink, the logits, the other outputs that differ, and the decoded steps.
    """
    all_steps: list[LadderStep] = []
    for prompt in climb.pair.prompts:
        if same_inputs(climb.pair, prompt):
            all_steps += _reported_layers(
                [step(climb, tensor) for tensor in _layers(climb, prompt)]
            )
            all_steps += [step(climb, tensor) for tensor in _logits(climb, prompt)]
            all_steps += _reported_outputs(step(climb, t) for t in _outputs(climb, prompt))
    all_steps += [step(climb, tensor) for tensor in _decodes(climb)]
    return (*all_steps, *probe_steps(climb, verdict=True))


def probe_steps(climb: Climb, *, verdict: bool) -> tuple[LadderStep, ...]:
    """Return the steps of what differs in the user's probes, of those that count or of the others.

    Layers and logits run on a model that other prompts have used, probes on one as it was loaded.
    """
    reference, candidate = climb.pair.reference, climb.pair.candidate
    return tuple(
        probe_step
        for name, facts in reference.signals.probes.items()
        if facts.verdict is verdict and name in candidate.signals.probes
        for function in facts.answers
        for probe_step in _steps_of_probe(climb, name, function)
    )


def _steps_of_probe(climb: Climb, name: Signal, function: str) -> Iterator[LadderStep]:
    captures = climb.pair.reference, climb.pair.candidate
    answers = [capture.signals.probes[name].answers.get(function) for capture in captures]
    if (
        answers[0] is None
        or answers[1] is None
        or not all(a.repeats is not False for a in answers if a)
    ):
        return
    for path, ref in answers[0].tensors.items():
        candidate_ref = answers[1].tensors.get(path)
        if candidate_ref is not None and ref.hash != candidate_ref.hash:
            rungs = {rung: _probe_refs(climb, name, path, rung) for rung in _RUNGS}
            subject = Subject(tensor=path)
            yield step(climb, Tensor(name, subject, (ref, candidate_ref), rungs, None))
    for path in answers[0].facts:
        if path in answers[1].facts and not same_fact(answers[0], answers[1], path):
            yield _fact_step(climb, name, path)


def _probe_refs(climb: Climb, name: Signal, path: str, rung_name: RungName) -> Refs:
    sides = (rung.probes.get(name) if rung else None for rung in climb.rungs(rung_name))
    reference, candidate = (side.tensors.get(path) if side else None for side in sides)
    return reference, candidate


def _fact_step(climb: Climb, name: Signal, path: str) -> LadderStep:
    """Return the step of a fact: it diverged if it also differs in float64, else it is undecided."""
    sides = [rung.probes.get(name) if rung else None for rung in climb.rungs("float64")]
    facts = [side.facts for side in sides if side is not None and path in side.facts]
    kind: Kind = "undecided"
    if len(facts) < 2:
        note = NO_FACT
    elif canonical(facts[0][path]) == canonical(facts[1][path]):
        note = SAME_FACT
    elif climb.leaks:
        note = LEAKED
    else:
        kind, note = "diverged", "the fact differs in float64, too"
    return LadderStep(
        signal=name,
        subject=Subject(tensor=path),
        own=None,
        float32=None,
        float64=None,
        kind=kind,
        note=note,
    )


def _reported_layers(layers: list[LadderStep]) -> list[LadderStep]:
    """Return the first layer that differs, and the first of each other notable kind."""
    kinds: dict[Kind, LadderStep] = {}
    first = next((step for step in layers if step.own), None)
    for layer in layers:
        if layer.kind != "same":
            kinds.setdefault(layer.kind, layer)
    reported = [first] if first is not None else []
    reported += [
        layer for kind, layer in kinds.items() if kind != "rounding" and layer is not first
    ]
    if first is None and "rounding" in kinds:
        reported.append(kinds["rounding"])
    return reported


def _reported_outputs(outputs: Iterable[LadderStep]) -> list[LadderStep]:
    """Return the outputs that differ on some rung."""
    return [output for output in outputs if output.kind != "same" or output.own]


def step(climb: Climb, tensor: Tensor) -> LadderStep:
    """Return the distance of the two sides of a tensor, rung by rung, and its judgement."""
    values, rows = climb.pair.values, tensor.rows
    own = tensor_distance(*tensor.own, values, rows)
    float32, float64 = tensor.rungs["float32"], tensor.rungs["float64"]
    if climb.dtype == "float32":
        float32 = tensor.own
    low = tensor_distance(*float32, values, rows)
    high = tensor_distance(*tensor.rungs["float64"], values, rows)
    rounded = tensor.own if low is None else float32
    self_errors = [
        tensor_distance(a, b, values, rows) for a, b in zip(rounded, float64, strict=True)
    ]
    noises = [
        tensor_distance(a, b, values, rows)
        for a, b in zip(float32, tensor.rungs["noise"], strict=True)
    ]
    kind, note, reason = verdict(own, low, high, self_errors, noises, climb.dtype)
    if climb.leaks and kind in ("diverged", "undecided") and own and own.finite_alike:
        kind, note, reason = "undecided", LEAKED, None
    return LadderStep(
        signal=tensor.signal,
        subject=tensor.subject,
        own=own.max_abs if own else None,
        float32=low.max_abs if low else None,
        float64=high.max_abs if high else None,
        noise=_sum_of_both(noises) if high is None else None,
        errors=own_errors(tensor.own, float64, values, rows),
        kind=kind,
        note=note,
        reason=reason,
    )


def verdict(
    own: Distance | None,
    low: Distance | None,
    high: Distance | None,
    errors: list[Distance | None],
    noises: list[Distance | None],
    dtype: str = "float32",
) -> tuple[Kind, str, Reason | None]:
    """Return the judgement of one tensor from its rungs, and a note if the slope did not decide.

    ``errors`` is the distance of each side's float32 (of ``dtype``, if ``low`` was left out) from
    its float64: all rounding in it, including rounding that both sides share. ``noises`` is the distance of float32 from float32
    with another order of summation. Where ``low`` was left out, the difference in ``dtype`` must
    shrink by as much as rounding in ``dtype`` and in float32 do together.
    """
    if own is None:
        return "undecided", "the values of both sides are not stored", None
    if not own.finite_alike:
        return "diverged", NOT_FINITE, Reason.NOT_FINITE
    if own.same_values and (high is None or high.max_abs == 0):
        return "same", "", None
    if high is None:
        return *_noise_verdict(own if low is None else low, noises), None
    if not high.finite_alike:
        return "diverged", f"in float64 {NOT_FINITE}", Reason.NOT_FINITE
    if own.max_abs == 0 and not own.same_values and not high.same_values and high.max_abs == 0:
        return "undecided", ZEROS, None
    before = low.max_abs if low is not None else own.max_abs
    before = before or _largest(errors) or 0.0
    kind = judged(before, high.max_abs)
    if low is None and not shrinks(before * _FLOAT32_SHARE.get(dtype, 1.0), high.max_abs):
        kind = "diverged" if kind == "diverged" else "undecided"
    if own.same_values:
        if kind == "rounding":
            return "same", "", None
        # a constant that one side stores rounded and the other computes shows only in float64
        return (kind if low is not None and low.max_abs else "undecided"), HIDDEN, None
    return kind, PARTLY if kind == "undecided" else "", None


def _noise_verdict(float32: Distance, noises: list[Distance | None]) -> tuple[Kind, str]:
    noise = _sum_of_both(noises)
    if noise is None:
        return "undecided", "it was not computed in float64"
    if float32.max_abs <= noise:
        return "rounding", "not computed in float64; no larger than the noise of both sides"
    return "undecided", "not computed in float64; larger than the noise of both sides"


def _sum_of_both(distances: list[Distance | None]) -> float | None:
    """Return the largest distance of two sides that are each this far from themselves."""
    errors = [distance.max_abs for distance in distances if distance is not None]
    return sum(errors) if len(errors) == 2 else None


def _largest(distances: list[Distance | None]) -> float | None:
    return max((distance.max_abs for distance in distances if distance is not None), default=None)


def _layers(climb: Climb, prompt: str) -> Iterator[Tensor]:
    reference, candidate = climb.pair.forwards(prompt)
    if reference is None or candidate is None:
        return
    positions = _positions(reference.hidden_states), _positions(candidate.hidden_states)
    for index, reference_layer, candidate_layer in layer_pairs(
        reference.hidden_states, candidate.hidden_states
    ):
        if reference_layer is None or candidate_layer is None:
            continue
        rows = _rows(
            (reference, candidate),
            reference_layer.ref,
            candidate_layer.ref,
            is_padded=reference_layer.padded and candidate_layer.padded,
        )
        if isinstance(rows, str):
            continue
        layer_positions = positions[0][id(reference_layer)], positions[1][id(candidate_layer)]
        yield Tensor(
            "hidden_states",
            layer_subject(prompt, index, reference_layer, candidate_layer),
            (reference_layer.ref, candidate_layer.ref),
            {name: _layer_refs(climb, prompt, name, layer_positions) for name in _RUNGS},
            rows,
        )


_RUNGS: tuple[RungName, ...] = ("float32", "float64", "noise")


def _positions(layers: tuple[Layer, ...]) -> dict[int, int]:
    return {id(layer): position for position, layer in enumerate(layers)}


def _layer_refs(climb: Climb, prompt: str, name: RungName, positions: tuple[int, int]) -> Refs:
    refs: list[TensorRef | None] = []
    for rung, position in zip(climb.rungs(name), positions, strict=True):
        forward = rung.forward.get(prompt) if rung is not None else None
        layers = forward.hidden_states if forward is not None else ()
        refs.append(layers[position].ref if position < len(layers) else None)
    return refs[0], refs[1]


def _logits(climb: Climb, prompt: str) -> Iterator[Tensor]:
    reference, candidate = climb.pair.forwards(prompt)
    if (
        reference is None
        or candidate is None
        or reference.logits is None
        or candidate.logits is None
    ):
        return
    is_padded = reference.logits_padded and candidate.logits_padded
    rows = _rows((reference, candidate), reference.logits, candidate.logits, is_padded=is_padded)
    if isinstance(rows, str):
        return
    rungs = {name: _logits_refs(climb, prompt, name) for name in _RUNGS}
    subject, own = Subject(prompt=prompt), (reference.logits, candidate.logits)
    yield Tensor("logits", subject, own, rungs, rows)


def _logits_refs(climb: Climb, prompt: str, name: RungName) -> Refs:
    forwards = [rung.forward.get(prompt) if rung else None for rung in climb.rungs(name)]
    reference, candidate = (forward.logits if forward else None for forward in forwards)
    return reference, candidate


def _outputs(climb: Climb, prompt: str) -> Iterator[Tensor]:
    forwards = climb.pair.forwards(prompt)
    if forwards[0] is None or forwards[1] is None:
        return
    both = forwards[0], forwards[1]
    for output in output_pairs(climb.pair.reference, climb.pair.candidate, prompt):
        if output.reference is None or output.candidate is None:
            continue
        subject, own = output.subject, (output.reference, output.candidate)
        if own[0].shape != own[1].shape:
            continue  # no rung can tell how far apart they are
        is_padded = all(has_padded_axis(f, ref) for f, ref in zip(both, own, strict=True))
        rows = _rows(both, *own, is_padded=is_padded)
        if isinstance(rows, str):
            continue
        names = subject.tensor, subject.counterpart or subject.tensor
        rungs = {name: _output_refs(climb, prompt, name, names) for name in _RUNGS}
        yield Tensor("outputs", subject, own, rungs, rows)


def _output_refs(climb: Climb, prompt: str, name: RungName, names: tuple[str, str]) -> Refs:
    refs: list[TensorRef | None] = []
    for rung, output in zip(climb.rungs(name), names, strict=True):
        forward = rung.forward.get(prompt) if rung is not None else None
        refs.append(forward.outputs.get(output) if forward is not None else None)
    return refs[0], refs[1]


def _rows(
    forwards: tuple[ForwardFacts, ForwardFacts],
    reference: TensorRef,
    candidate: TensorRef,
    *,
    is_padded: bool,
) -> NDArray[np.bool_] | str | None:
    """Return the mask of real rows, None for all rows, or '' if the padding is unknown."""
    rows = real_rows(forwards[0], reference) if is_padded else None
    is_hidden = (
        rows is None and reference.hash != candidate.hash and may_hide_padding(forwards, reference)
    )
    return "" if is_hidden else rows


def _decodes(climb: Climb) -> Iterator[Tensor]:
    native = climb.rungs("own")
    rows = native[0].decode if native[0] is not None else {}
    sides = (climb.pair.reference.signals.greedy, climb.pair.candidate.signals.greedy)
    for row in rows:
        if any(side is not None and row not in side for side in sides) or None in sides:
            continue  # a side that did not decode the row in its own run has nothing to compare
        refs = {name: _decode_refs(climb, row, name) for name in _RUNGS}
        subject = row_subject(row, climb.pair.prompts)
        yield Tensor("decode", subject, _decode_refs(climb, row, "own"), refs, None)


def _decode_refs(climb: Climb, row: str, name: RungName) -> Refs:
    reference, candidate = (rung.decode.get(row) if rung else None for rung in climb.rungs(name))
    return reference, candidate

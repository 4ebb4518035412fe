"""How far are two cells apart on every rung, tensor by tensor, and what does the slope say?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.forwards import layer_pairs, may_hide_padding, real_rows, same_inputs
from samebits.compare.standing import Standing, judged
from samebits.ladder.distance import Apart, apart, own_errors
from samebits.records.ladder import LadderStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from samebits.compare.pair import Pair
    from samebits.records.capture import ForwardFacts, Layer
    from samebits.records.ladder import Kind, LadderFile, Rung, RungName
    from samebits.records.tensor import TensorRef

ZEROS = "the values are equal: only signs of zeros or bits of NaN differ"
LEAKED = "float64 does not reach every operation, so what stays there proves nothing"
HIDDEN = "the variant's dtype hides it: its numbers are the same on both sides"

Refs = tuple["TensorRef | None", "TensorRef | None"]


@dataclass(frozen=True)
class Climb:
    """A pair of cells, and what both left on the rungs."""

    pair: Pair
    files: tuple[LadderFile, LadderFile]

    @property
    def dtype(self) -> str:
        """The variant's dtype."""
        return self.pair.reference.cell.variant.dtype

    def rungs(self, name: RungName) -> tuple[Rung | None, Rung | None]:
        """Return a rung of both sides; float32 is the own one of a float32 variant."""
        if name == "float32" and self.dtype == "float32":
            name = "own"
        return self.files[0].rungs.get(name), self.files[1].rungs.get(name)

    @property
    def leaks(self) -> tuple[str, ...]:
        """Operations of either side that gave less than float64 on its rung."""
        found = [rung.leaks for rung in self.rungs("float64") if rung is not None]
        return tuple(sorted({leak for leaks in found for leak in leaks}))


class Tensor(NamedTuple):
    """One tensor of a pair as every rung has it, and which of its rows are real."""

    prompt: str
    what: str
    own: Refs
    rungs: dict[RungName, Refs]
    rows: NDArray[np.bool_] | None


def steps(climb: Climb) -> tuple[LadderStep, ...]:
    """Return what is to be seen of every prompt.

    That is the layer where the difference starts, the layer that shrinks least if that one does
    not shrink, the logits, and what is decoded.
    """
    found: list[LadderStep] = []
    for prompt in climb.pair.prompts:
        if same_inputs(climb.pair, prompt):
            found += _telling([step(climb, tensor) for tensor in _layers(climb, prompt)])
            found += [step(climb, tensor) for tensor in _logits(climb, prompt)]
    found += [step(climb, tensor) for tensor in _decodes(climb)]
    return tuple(found)


def _telling(layers: list[LadderStep]) -> list[LadderStep]:
    """Return the first layer that differs, and the first of what it does not yet say."""
    kinds: dict[Kind, LadderStep] = {}
    first = next((step for step in layers if step.own), None)
    for found in layers:
        if found.kind != "same":
            kinds.setdefault(found.kind, found)
    told = [first] if first is not None else []
    told += [found for kind, found in kinds.items() if kind != "rounding" and found is not first]
    if first is None and "rounding" in kinds:
        told.append(kinds["rounding"])
    return told


def step(climb: Climb, tensor: Tensor) -> LadderStep:
    """Return how far the two sides of a tensor are apart, rung by rung, and what that says."""
    values, rows = climb.pair.values, tensor.rows
    own = apart(*tensor.own, values, rows)
    float32, float64 = tensor.rungs["float32"], tensor.rungs["float64"]
    if climb.dtype == "float32":
        float32 = tensor.own
    low = apart(*float32, values, rows)
    high = apart(*tensor.rungs["float64"], values, rows)
    self_errors = [apart(a, b, values, rows) for a, b in zip(float32, float64, strict=True)]
    noises = [
        apart(a, b, values, rows) for a, b in zip(float32, tensor.rungs["noise"], strict=True)
    ]
    kind, note = verdict(own, low, high, self_errors, noises)
    if climb.leaks and kind in ("diverged", "undecided") and own and own.finite_alike:
        kind, note = "undecided", LEAKED
    return LadderStep(
        prompt=tensor.prompt,
        what=tensor.what,
        own=own.max_abs if own else None,
        float32=low.max_abs if low else None,
        float64=high.max_abs if high else None,
        noise=_both(noises) if high is None else None,
        errors=own_errors(tensor.own, float64, values, rows),
        kind=kind,
        note=note,
    )


def verdict(
    own: Apart | None,
    low: Apart | None,
    high: Apart | None,
    errors: list[Apart | None],
    noises: list[Apart | None],
) -> tuple[Kind, str]:
    """Return what the rungs say of one tensor, and why if that is not the slope.

    ``errors`` is each side's float32 from its float64: what rounding there is in float32,
    whatever of it the two sides share. ``noises`` is float32 from float32, summed otherwise.
    """
    if own is None:
        return "undecided", "the values of both sides are not there to be compared"
    if not own.finite_alike:
        return "diverged", "one side is not finite where the other is"
    if own.same_values and (high is None or high.max_abs == 0):
        return "same", ""
    if high is None:
        return _by_noise(own if low is None else low, noises)
    if not high.finite_alike:
        return "diverged", "in float64 one side is not finite where the other is"
    if own.max_abs == 0 and not own.same_values and not high.same_values and high.max_abs == 0:
        return "undecided", ZEROS
    before = low.max_abs if low is not None else own.max_abs
    before = before or _largest(errors) or 0.0
    kind = _KINDS[judged(before, high.max_abs)]
    if own.same_values:
        if kind == "rounding":
            return "same", ""
        # a constant that one side stores rounded, and the other computes, shows in float64 alone
        return (kind if low is not None and low.max_abs else "undecided"), HIDDEN
    if kind == "undecided":
        return kind, "float64 leaves a part of it: more than rounding, less than all"
    return kind, ""


_KINDS: dict[Standing, Kind] = {
    Standing.SHRINKS: "rounding",
    Standing.STAYS: "diverged",
    Standing.UNKNOWN: "undecided",
}


def _by_noise(float32: Apart, noises: list[Apart | None]) -> tuple[Kind, str]:
    noise = _both(noises)
    if noise is None:
        return "undecided", "there is no float64 of it"
    if float32.max_abs <= noise:
        return "rounding", "no float64 of it; no larger than the noise of both sides"
    return "undecided", "no float64 of it; larger than the noise of both sides"


def _both(found: list[Apart | None]) -> float | None:
    """Return how far two sides can be apart if each is as far from itself as was seen."""
    known = [one.max_abs for one in found if one is not None]
    return sum(known) if len(known) == 2 else None


def _largest(found: list[Apart | None]) -> float | None:
    return max((one.max_abs for one in found if one is not None), default=None)


def _layers(climb: Climb, prompt: str) -> Iterator[Tensor]:
    mine, theirs = climb.pair.forwards(prompt)
    if mine is None or theirs is None:
        return
    places = _places(mine.hidden_states), _places(theirs.hidden_states)
    for index, one, other in layer_pairs(mine.hidden_states, theirs.hidden_states):
        if one is None or other is None:
            continue
        rows = _rows((mine, theirs), one.ref, other.ref, on_axis=one.padded and other.padded)
        if isinstance(rows, str):
            continue
        names = dict.fromkeys((one.name, other.name))
        at = places[0][id(one)], places[1][id(other)]
        yield Tensor(
            prompt,
            f"layer {index} ({' → '.join(names)})",
            (one.ref, other.ref),
            {name: _layer_refs(climb, prompt, name, at) for name in _RUNGS},
            rows,
        )


_RUNGS: tuple[RungName, ...] = ("float32", "float64", "noise")


def _places(layers: tuple[Layer, ...]) -> dict[int, int]:
    return {id(layer): place for place, layer in enumerate(layers)}


def _layer_refs(climb: Climb, prompt: str, name: RungName, at: tuple[int, int]) -> Refs:
    found: list[TensorRef | None] = []
    for rung, place in zip(climb.rungs(name), at, strict=True):
        forward = rung.forward.get(prompt) if rung is not None else None
        layers = forward.hidden_states if forward is not None else ()
        found.append(layers[place].ref if place < len(layers) else None)
    return found[0], found[1]


def _logits(climb: Climb, prompt: str) -> Iterator[Tensor]:
    mine, theirs = climb.pair.forwards(prompt)
    if mine is None or theirs is None or mine.logits is None or theirs.logits is None:
        return
    on_axis = mine.logits_padded and theirs.logits_padded
    rows = _rows((mine, theirs), mine.logits, theirs.logits, on_axis=on_axis)
    if isinstance(rows, str):
        return
    rungs = {name: _logits_refs(climb, prompt, name) for name in _RUNGS}
    yield Tensor(prompt, "logits", (mine.logits, theirs.logits), rungs, rows)


def _logits_refs(climb: Climb, prompt: str, name: RungName) -> Refs:
    forwards = [rung.forward.get(prompt) if rung else None for rung in climb.rungs(name)]
    one, other = (forward.logits if forward else None for forward in forwards)
    return one, other


def _rows(
    both: tuple[ForwardFacts, ForwardFacts], one: TensorRef, other: TensorRef, *, on_axis: bool
) -> NDArray[np.bool_] | str | None:
    """Return the mask of real rows, None for all, or '' where padding cannot be told apart."""
    rows = real_rows(both[0], one) if on_axis else None
    hidden = rows is None and one.hash != other.hash and may_hide_padding(both, one)
    return "" if hidden else rows


def _decodes(climb: Climb) -> Iterator[Tensor]:
    own = climb.rungs("own")
    rows = own[0].decode if own[0] is not None else {}
    sides = (climb.pair.reference.signals.greedy, climb.pair.candidate.signals.greedy)
    for row in rows:
        if any(side is not None and row not in side for side in sides) or None in sides:
            continue  # a side whose own run did not decode it has nothing that could differ
        refs = {name: _decode_refs(climb, row, name) for name in _RUNGS}
        yield Tensor(row, "decode", _decode_refs(climb, row, "own"), refs, None)


def _decode_refs(climb: Climb, row: str, name: RungName) -> Refs:
    one, other = (rung.decode.get(row) if rung else None for rung in climb.rungs(name))
    return one, other

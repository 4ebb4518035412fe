"""Do both sides hold the same weights, seen from the checkpoint?

Versions rename, fuse, stack, split and transpose what they load. So a loaded tensor is taken
apart into pieces of checkpoint tensors, and both sides must carry the same parts of the same
checkpoint tensors in the same dtype. Whatever else is in memory pairs by name, then by hash.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import bare, reason
from samebits.compare.slices import coverage, same_part
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.records.capture import Piece, WeightFacts, WeightsSignal
from samebits.records.comparison import ItemComparison
from samebits.records.tensor import NUMPY_DTYPES, tensor_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.pair import Pair
    from samebits.records.capture import Capture
    from samebits.records.comparison import SignalComparison
    from samebits.records.tensor import TensorRef


MOST_CONSTANT = 1 << 20
"""Elements of the largest tensor that is looked at for being constant: biases, norms."""


def weights(pair: Pair) -> SignalComparison:
    """Compare the weights of two runs in checkpoint space."""
    reference, candidate = pair.reference.signals.weights, pair.candidate.signals.weights
    if reference is None or candidate is None:
        return not_observed(
            pair, "weights", reference=reference is None, candidate=candidate is None
        )
    sides = Sides.of(pair, reference, candidate)
    others = _others(sides)
    items = (*others.items, *_checkpoint_items(sides, others), *bare(pair, "weights"))
    return signal_comparison("weights", items)


@dataclass(frozen=True)
class Carrier:
    """A tensor in memory that carries a piece of a checkpoint tensor."""

    name: str
    facts: WeightFacts
    piece: Piece

    @property
    def is_whole(self) -> bool:
        """True if the tensor is exactly one whole checkpoint tensor as the file has it."""
        return (
            not self.facts.layout
            and len(self.facts.pieces) == 1
            and self.piece == Piece(tensor=self.piece.tensor)
        )


@dataclass(frozen=True)
class Side:
    """The tensors of one run by name, and what they carry."""

    tensors: dict[str, WeightFacts]

    @cached_property
    def by_name(self) -> dict[str, tuple[str, WeightFacts]]:
        """Every name, tied ones too -> the tensor's first name, and the tensor."""
        found = {name: (name, facts) for name, facts in self.tensors.items()}
        for name, facts in self.tensors.items():
            for alias in facts.aliases:
                found.setdefault(alias, (name, facts))
        return found

    @cached_property
    def by_hash(self) -> dict[str, str]:
        """Hash -> first name of a tensor with those bytes."""
        found: dict[str, str] = {}
        for name, facts in self.tensors.items():
            found.setdefault(facts.ref.hash, name)
        return found

    @cached_property
    def pieces_by_hash(self) -> dict[str, tuple[Piece, ...]]:
        """Hash -> every piece that some loaded tensor with those bytes carries."""
        found: dict[str, dict[Piece, None]] = defaultdict(dict)
        for facts in self.tensors.values():
            if is_loaded(facts):
                found[facts.ref.hash].update(dict.fromkeys(facts.pieces))
        return {hash: tuple(pieces) for hash, pieces in found.items()}


@dataclass(frozen=True)
class Sides:
    """Both runs' tensors, and for each checkpoint tensor who carries it."""

    pair: Pair
    reference: Side
    candidate: Side

    @classmethod
    def of(cls, pair: Pair, reference: WeightsSignal, candidate: WeightsSignal) -> Sides:
        """Return the sides; a buffer that is persistent on one side alone is judged here too."""
        return cls(
            pair,
            Side(reference.tensors | _lent(candidate, reference, pair.reference)),
            Side(candidate.tensors | _lent(reference, candidate, pair.candidate)),
        )

    @cached_property
    def carriers(self) -> tuple[dict[str, list[Carrier]], dict[str, list[Carrier]]]:
        """Checkpoint tensor -> what carries it, on each side.

        Equal bytes carry the same, whatever each side's probe said they come from. And
        checkpoint tensors of equal bytes, and all that hold but zeros or ones, count as one:
        which of them a tensor was traced to is chance.
        """
        return _carriers(self.reference, self), _carriers(self.candidate, self)

    @cached_property
    def twins(self) -> dict[str, str]:
        """Checkpoint tensor -> another that is known to hold the same."""
        first: dict[object, str] = {}
        twins: dict[str, str] = {}
        for carrier in self._wholes():
            one = _root(twins, carrier.piece.tensor)
            other = _root(twins, first.setdefault(_content(carrier.facts.ref), one))
            if one != other:
                twins[one] = other
        return twins

    @cached_property
    def constants(self) -> frozenset[str]:
        """Checkpoint tensors, twins as one, that are known to hold but zeros or ones."""
        found = (carrier for carrier in self._wholes() if constant(carrier.facts.ref))
        return frozenset(self.root(carrier.piece.tensor) for carrier in found)

    @cached_property
    def clashes(self) -> dict[str, tuple[WeightFacts, WeightFacts]]:
        """Checkpoint tensor -> two tensors that claim to be made alike and hold other bytes."""
        made: dict[object, list[WeightFacts]] = defaultdict(list)
        for facts in filter(is_loaded, self.reference.tensors.values()):
            made[_form(facts)].append(facts)
        found: dict[str, tuple[WeightFacts, WeightFacts]] = {}
        for facts in filter(is_loaded, self.candidate.tensors.values()):
            alike = made.get(_form(facts), [])
            if alike and all(one.ref.hash != facts.ref.hash for one in alike):
                found.update({self.root(p.tensor): (alike[0], facts) for p in facts.pieces})
        return found

    def root(self, tensor: str) -> str:
        """Return the one name of all checkpoint tensors that are known to hold the same."""
        return _root(self.twins, tensor)

    def _wholes(self) -> Iterator[Carrier]:
        for side in (self.reference, self.candidate):
            for name, facts in side.tensors.items():
                carriers = (Carrier(name, facts, piece) for piece in self.pieces(facts))
                yield from (carrier for carrier in carriers if carrier.is_whole)

    def pieces(self, facts: WeightFacts) -> tuple[Piece, ...]:
        """Return what a tensor carries: its own pieces, or those of equal bytes elsewhere."""
        hash = facts.ref.hash
        shared = hash in self.reference.by_hash and hash in self.candidate.by_hash
        if not shared:
            return facts.pieces if is_loaded(facts) else ()
        both = (self.reference.pieces_by_hash, self.candidate.pieces_by_hash)
        return tuple(dict.fromkeys(piece for side in both for piece in side.get(hash, ())))


@dataclass
class Others:
    """What was judged apart from the checkpoint."""

    items: list[ItemComparison] = field(default_factory=list)
    blamed: set[str] = field(default_factory=set)
    """Checkpoint tensors whose carrier on one side was already found to differ by name."""


def is_loaded(facts: WeightFacts) -> bool:
    """Return True if the tensor's bytes are traced to checkpoint tensors."""
    return facts.origin == "loaded" and bool(facts.pieces)


def _lent(other: WeightsSignal, own: WeightsSignal, capture: Capture) -> dict[str, WeightFacts]:
    """Return this run's plain buffers that are persistent in the other, as weights."""
    persistent = {name for name, facts in other.tensors.items() if facts.kind == "buffer"}
    own_names = set(own.tensors) | {a for facts in own.tensors.values() for a in facts.aliases}
    return {
        name: WeightFacts(ref=facts.ref, kind="buffer", origin="derived")
        for name, facts in (capture.signals.buffers or {}).items()
        if name in persistent and name not in own_names
    }


def _content(ref: TensorRef) -> object:
    return constant(ref) or ref.hash


def constant(ref: TensorRef) -> str | None:
    """Return ``zeros float32`` or ``ones float32`` for a small tensor of nothing else."""
    if ref.dtype not in NUMPY_DTYPES or not 0 < ref.numel <= MOST_CONSTANT:
        return None
    return _constants(ref.dtype, ref.shape).get(ref.hash)


@cache
def _constants(dtype: str, shape: tuple[int, ...]) -> dict[str, str]:
    fills = {"zeros": np.zeros, "ones": np.ones}
    return {
        tensor_hash(dtype, shape, fill(shape, NUMPY_DTYPES[dtype]).tobytes()): f"{name} {dtype}"
        for name, fill in fills.items()
    }


def _form(facts: WeightFacts) -> object:
    return facts.pieces, facts.layout, facts.ref.dtype, facts.ref.shape


def _root(twins: dict[str, str], name: str) -> str:
    while name in twins:
        name = twins[name]
    return name


def _carriers(side: Side, sides: Sides) -> dict[str, list[Carrier]]:
    found: dict[str, list[Carrier]] = defaultdict(list)
    for name, facts in side.tensors.items():
        for piece in sides.pieces(facts):
            found[sides.root(piece.tensor)].append(Carrier(name, facts, piece))
    return dict(found)


def _others(sides: Sides) -> Others:
    """Judge the tensors that at least one side does not have from the checkpoint."""
    others = Others()
    for shared, (mine, theirs) in _namesakes(sides).items():
        reference, candidate = sides.reference.tensors[mine], sides.candidate.tensors[theirs]
        if not (is_loaded(reference) and is_loaded(candidate)):
            _add_pair(others, sides, shared, reference, candidate)
    for side, other, in_reference in (
        (sides.reference, sides.candidate, True),
        (sides.candidate, sides.reference, False),
    ):
        for name, facts in side.tensors.items():
            if not is_loaded(facts) and other.by_name.keys().isdisjoint((name, *facts.aliases)):
                others.items.append(
                    _without_namesake(sides, name, facts, in_reference=in_reference)
                )
    return others


def _namesakes(sides: Sides) -> dict[str, tuple[str, str]]:
    """Return shared name -> the first names of both sides' tensors, each pair once.

    One tied tensor has two namesakes where the tie is gone.
    """
    theirs = sides.candidate.by_name
    shared = {
        n: (own[0], theirs[n][0]) for n, own in sides.reference.by_name.items() if n in theirs
    }
    first: dict[tuple[str, str], str] = {}
    for name, pair in shared.items():
        first.setdefault(pair, name)
    return {name: pair for pair, name in first.items()}


def _add_pair(
    others: Others, sides: Sides, name: str, reference: WeightFacts, candidate: WeightFacts
) -> None:
    item = compare_tensors(name, reference.ref, candidate.ref, sides.pair.values)
    if item.outcome == "differs":
        others.blamed.update(piece.tensor for f in (reference, candidate) for piece in f.pieces)
        item = item.model_copy(update={"note": _joined(_origins(reference, candidate), item.note)})
    if item.outcome != "identical" or not (is_loaded(reference) or is_loaded(candidate)):
        others.items.append(item)  # else the checkpoint tensor's own item says so


def _without_namesake(
    sides: Sides, name: str, facts: WeightFacts, *, in_reference: bool
) -> ItemComparison:
    """Judge a tensor that is not from the checkpoint and has no namesake on the other side."""
    other = sides.candidate if in_reference else sides.reference
    ref = facts.ref
    if ref.hash in other.by_hash:
        note = f"the same bytes as {other.by_hash[ref.hash]}, its name on the other side"
        return ItemComparison(
            name=name, outcome="identical", reference=ref, candidate=ref, note=note
        )
    reference, candidate = (ref, None) if in_reference else (None, ref)
    if facts.kind == "buffer":
        note = f"a {facts.origin} buffer that the other side does not have"
        return unpaired(name, reference, candidate, note, excused=True)
    untraced = _untraced(sides)
    if untraced is None:
        return unpaired(name, reference, candidate, f"{facts.origin}; no checkpoint tensor")
    note = f"has no namesake on the other side, and cannot be traced to a checkpoint: {untraced}"
    item = unpaired(name, reference, candidate, note, excused=bool(untraced))
    return item.model_copy(update={"outcome": "not compared"})


def _untraced(sides: Sides) -> str | None:
    """Return why a side has no checkpoint to trace to ('': it does not say); None if both have.

    Without one, a tensor that was fused is not told from one that is missing.
    """
    for capture in (sides.pair.reference, sides.pair.candidate):
        signal = capture.signals.weights
        if signal is not None and not signal.checkpoint_tensors:
            why = (s.reason for s in capture.skips if s.what == "weights: origin")
            return next(why, reason(capture, "weights"))
    return None


def _origins(reference: WeightFacts, candidate: WeightFacts) -> str:
    if reference.origin == candidate.origin:
        return reference.origin
    return f"{reference.origin} in the reference, {candidate.origin} here"


def _checkpoint_items(sides: Sides, others: Others) -> Iterator[ItemComparison]:
    """Yield one item for every checkpoint tensor that a side carries."""
    reference, candidate = sides.carriers
    blamed = {sides.root(tensor) for tensor in others.blamed}
    for tensor in dict.fromkeys((*reference, *candidate)):
        mine, theirs = reference.get(tensor, []), candidate.get(tensor, [])
        if mine and theirs:
            yield _carried(tensor, mine, theirs, sides)
        elif tensor not in blamed:
            yield _carried_once(tensor, mine, theirs, sides)


def _carried(
    tensor: str, mine: list[Carrier], theirs: list[Carrier], sides: Sides
) -> ItemComparison:
    """Compare what both sides carry of one checkpoint tensor: bytes, dtype, then part."""
    if tensor in sides.clashes:
        one, other = sides.clashes[tensor]
        return compare_tensors(tensor, one.ref, other.ref, sides.pair.values)
    if _dtypes(mine) != _dtypes(theirs):
        return _other_dtype(tensor, mine, theirs, sides)
    answers = [_same_parts(dtype, mine, theirs) for dtype in _dtypes(mine)]
    refs = _only_ref(mine), _only_ref(theirs)
    item = ItemComparison(name=tensor, outcome="identical", reference=refs[0], candidate=refs[1])
    if all(answers) or tensor in sides.constants:
        return item
    note = _sided("part", _described(mine), _described(theirs))
    outcome = "differs" if False in answers else "not compared"
    return item.model_copy(update={"outcome": outcome, "note": note})


def _other_dtype(
    tensor: str, mine: list[Carrier], theirs: list[Carrier], sides: Sides
) -> ItemComparison:
    one, other = _only_whole(mine), _only_whole(theirs)
    if one is not None and other is not None:
        return compare_tensors(tensor, one, other, sides.pair.values)
    note = _sided("dtype", _dtypes(mine), _dtypes(theirs))
    return ItemComparison(name=tensor, outcome="differs", note=note)


def _carried_once(
    tensor: str, mine: list[Carrier], theirs: list[Carrier], sides: Sides
) -> ItemComparison:
    note = f"carried by {', '.join(_described(mine or theirs))}; by nothing on the other side"
    item = unpaired(tensor, _only_ref(mine), _only_ref(theirs), note).model_copy(
        update={"outcome": "only in reference" if mine else "only here"}
    )
    untraced = _untraced(sides)
    if untraced is None:
        return item
    told = f"{note}, which could not be traced to the checkpoint: {untraced or 'no reason'}"
    return item.model_copy(
        update={"outcome": "not compared", "note": told, "excused": bool(untraced)}
    )


def _same_parts(dtype: str, mine: list[Carrier], theirs: list[Carrier]) -> bool | None:
    shapes = [c.facts.ref.shape for c in (*mine, *theirs) if c.is_whole]
    parts = [
        coverage(c.piece.part for c in carriers if c.facts.ref.dtype == dtype)
        for carriers in (mine, theirs)
    ]
    return same_part(parts[0], parts[1], shapes[0] if shapes else None)


def _dtypes(carriers: list[Carrier]) -> list[str]:
    return sorted({carrier.facts.ref.dtype for carrier in carriers})


def _only_ref(carriers: list[Carrier]) -> TensorRef | None:
    return carriers[0].facts.ref if len(carriers) == 1 else None


def _only_whole(carriers: list[Carrier]) -> TensorRef | None:
    return _only_ref(carriers) if all(carrier.is_whole for carrier in carriers) else None


def _described(carriers: list[Carrier]) -> list[str]:
    return [
        f"{carrier.name}{described_piece(carrier.facts, carrier.piece)}" for carrier in carriers
    ]


def described_piece(facts: WeightFacts, piece: Piece) -> str:
    """Return in brackets how a tensor in memory holds a piece, '' if as it is."""
    told = [facts.layout, f"part {piece.part}" if piece.part else ""]
    if piece.transposed and "transpose" not in facts.layout:
        told.append("transposed")
    words = ", ".join(filter(None, told))
    return f" ({words})" if words else ""


def _sided(what: str, reference: list[str], candidate: list[str]) -> str:
    return f"{what} {', '.join(reference)} in the reference, {', '.join(candidate)} here"


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))

"""Comparison of the weights of two runs, in terms of the checkpoint's tensors.

Releases rename, fuse, stack, split and transpose the tensors that they load. So a loaded tensor is
described as pieces of checkpoint tensors, and both sides must hold the same parts of the same
checkpoint tensors in the same dtype. All other tensors in memory are paired by name, then by hash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.compare.pair import Pair, TensorSource, reason, unreadable_items
from samebits.compare.slices import coverage, same_part
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.records.capture import Capture, Piece, WeightFacts, WeightsSignal
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.subject import Reason, Subject
from samebits.records.tensor import NUMPY_DTYPES, TensorRef, tensor_hash

MAX_CONSTANT_ELEMENTS = 1 << 20
"""Elements of the largest tensor that is checked for being constant: biases, norms."""


def weights(pair: Pair) -> SignalComparison:
    """Compare the weights of two runs in checkpoint space."""
    reference, candidate = pair.reference.signals.weights, pair.candidate.signals.weights
    if reference is None or candidate is None:
        return not_observed(
            pair, "weights", reference=reference is None, candidate=candidate is None
        )
    sides = Sides.of(pair, reference, candidate)
    others = _judge_others(sides)
    items = (*others.items, *_checkpoint_items(sides, others), *unreadable_items(pair, "weights"))
    return signal_comparison("weights", items)


@dataclass(frozen=True)
class Carrier:
    """A tensor in memory that holds a piece of a checkpoint tensor."""

    name: str
    facts: WeightFacts
    piece: Piece

    @property
    def is_whole(self) -> bool:
        """True if the tensor is exactly one whole checkpoint tensor, as in the file."""
        return (
            not self.facts.layout
            and len(self.facts.pieces) == 1
            and self.piece == Piece(tensor=self.piece.tensor)
        )


@dataclass(frozen=True)
class Side:
    """The tensors of one run by name, and the pieces that they hold."""

    tensors: dict[str, WeightFacts]

    @cached_property
    def by_name(self) -> dict[str, tuple[str, WeightFacts]]:
        """Every name, including tied ones -> the tensor's first name, and the tensor."""
        first_names = {name: (name, facts) for name, facts in self.tensors.items()}
        for name, facts in self.tensors.items():
            for alias in facts.aliases:
                first_names.setdefault(alias, (name, facts))
        return first_names

    @cached_property
    def by_hash(self) -> dict[str, str]:
        """Hash -> first name of a tensor with those bytes."""
        names: dict[str, str] = {}
        for name, facts in self.tensors.items():
            names.setdefault(facts.ref.hash, name)
        return names

    @cached_property
    def pieces_by_hash(self) -> dict[str, tuple[Piece, ...]]:
        """Hash -> every piece that a loaded tensor with those bytes holds."""
        pieces_of: dict[str, dict[Piece, None]] = defaultdict(dict)
        for facts in self.tensors.values():
            if is_loaded(facts):
                pieces_of[facts.ref.hash].update(dict.fromkeys(facts.pieces))
        return {hash: tuple(pieces) for hash, pieces in pieces_of.items()}


@dataclass(frozen=True)
class Sides:
    """The tensors of both runs, and the tensors that hold each checkpoint tensor."""

    pair: Pair
    reference: Side
    candidate: Side

    @classmethod
    def of(cls, pair: Pair, reference: WeightsSignal, candidate: WeightsSignal) -> Sides:
        """Return the sides; a buffer that is persistent on only one side counts as a weight."""
        return cls(
            pair,
            Side(reference.tensors | _promoted_buffers(candidate, reference, pair.reference)),
            Side(candidate.tensors | _promoted_buffers(reference, candidate, pair.candidate)),
        )

    @cached_property
    def carriers(self) -> tuple[dict[str, list[Carrier]], dict[str, list[Carrier]]]:
        """Checkpoint tensor -> the tensors that hold it, on each side.

        Equal bytes hold the same pieces, whatever origin each side's probe found. Checkpoint
        tensors of equal bytes count as one, and so do all that hold only zeros or only ones: which
        of them a tensor was traced to is arbitrary.
        """
        return _carriers(self.reference, self), _carriers(self.candidate, self)

    @cached_property
    def twins(self) -> dict[str, str]:
        """Checkpoint tensor -> another that is known to have the same content."""
        first: dict[object, str] = {}
        twins: dict[str, str] = {}
        for carrier in self._wholes():
            root = _root(twins, carrier.piece.tensor)
            twin_root = _root(twins, first.setdefault(_content_key(carrier.facts.ref), root))
            if root != twin_root:
                twins[root] = twin_root
        return twins

    @cached_property
    def constants(self) -> frozenset[str]:
        """Checkpoint tensors, twins as one, that are known to hold only zeros or only ones."""
        carriers = (carrier for carrier in self._wholes() if constant(carrier.facts.ref))
        return frozenset(self.root(carrier.piece.tensor) for carrier in carriers)

    @cached_property
    def clashes(self) -> dict[str, tuple[WeightFacts, WeightFacts]]:
        """Checkpoint tensor -> two tensors with the same pieces and layout, but different bytes."""
        by_form: dict[object, list[WeightFacts]] = defaultdict(list)
        for facts in filter(is_loaded, self.reference.tensors.values()):
            by_form[_form_key(facts)].append(facts)
        clashes: dict[str, tuple[WeightFacts, WeightFacts]] = {}
        for facts in filter(is_loaded, self.candidate.tensors.values()):
            same_form = by_form.get(_form_key(facts), [])
            if same_form and all(twin.ref.hash != facts.ref.hash for twin in same_form):
                clashes.update({self.root(p.tensor): (same_form[0], facts) for p in facts.pieces})
        return clashes

    def root(self, tensor: str) -> str:
        """Return the one name for all checkpoint tensors known to have the same content."""
        return _root(self.twins, tensor)

    def _wholes(self) -> Iterator[Carrier]:
        for side in (self.reference, self.candidate):
            for name, facts in side.tensors.items():
                carriers = (Carrier(name, facts, piece) for piece in self.pieces(facts))
                yield from (carrier for carrier in carriers if carrier.is_whole)

    def pieces(self, facts: WeightFacts) -> tuple[Piece, ...]:
        """Return the pieces that a tensor holds: its own, or those of equal bytes elsewhere."""
        hash = facts.ref.hash
        shared = hash in self.reference.by_hash and hash in self.candidate.by_hash
        if not shared:
            return facts.pieces if is_loaded(facts) else ()
        indices = (self.reference.pieces_by_hash, self.candidate.pieces_by_hash)
        return tuple(dict.fromkeys(piece for side in indices for piece in side.get(hash, ())))


@dataclass
class OtherTensors:
    """Tensors that are judged separately from the checkpoint."""

    items: list[ItemComparison] = field(default_factory=list)
    blamed: set[str] = field(default_factory=set)
    """Checkpoint tensors whose carrier on one side already differs by name."""


def is_loaded(facts: WeightFacts) -> bool:
    """Return True if the bytes of the tensor are traced to checkpoint tensors."""
    return facts.origin == "loaded" and bool(facts.pieces)


def _promoted_buffers(
    other_side: WeightsSignal, this_side: WeightsSignal, capture: Capture
) -> dict[str, WeightFacts]:
    """Return the plain buffers of this run that are persistent in the other, as weights."""
    persistent = {name for name, facts in other_side.tensors.items() if facts.kind == "buffer"}
    names = set(this_side.tensors) | {
        a for facts in this_side.tensors.values() for a in facts.aliases
    }
    return {
        name: WeightFacts(ref=facts.ref, kind="buffer", origin="derived")
        for name, facts in (capture.signals.buffers or {}).items()
        if name in persistent and name not in names
    }


def _content_key(ref: TensorRef) -> object:
    return constant(ref) or ref.hash


def constant(ref: TensorRef) -> str | None:
    """Return ``zeros float32`` or ``ones float32`` for a small tensor that holds only these."""
    if ref.dtype not in NUMPY_DTYPES or not 0 < ref.numel <= MAX_CONSTANT_ELEMENTS:
        return None
    return _constant_names(ref.dtype, ref.shape).get(ref.hash)


@cache
def _constant_names(dtype: str, shape: tuple[int, ...]) -> dict[str, str]:
    fills = {"zeros": np.zeros, "ones": np.ones}
    return {
        tensor_hash(dtype, shape, fill(shape, NUMPY_DTYPES[dtype]).tobytes()): f"{name} {dtype}"
        for name, fill in fills.items()
    }


def _form_key(facts: WeightFacts) -> object:
    return facts.pieces, facts.layout, facts.ref.dtype, facts.ref.shape


def _root(twins: dict[str, str], name: str) -> str:
    while name in twins:
        name = twins[name]
    return name


def _carriers(side: Side, sides: Sides) -> dict[str, list[Carrier]]:
    carriers: dict[str, list[Carrier]] = defaultdict(list)
    for name, facts in side.tensors.items():
        for piece in sides.pieces(facts):
            carriers[sides.root(piece.tensor)].append(Carrier(name, facts, piece))
    return dict(carriers)


def _judge_others(sides: Sides) -> OtherTensors:
    """Judge the tensors that at least one side did not load from the checkpoint."""
    others = OtherTensors()
    for shared, (reference_name, candidate_name) in _namesakes(sides).items():
        reference, candidate = (
            sides.reference.tensors[reference_name],
            sides.candidate.tensors[candidate_name],
        )
        if not (is_loaded(reference) and is_loaded(candidate)):
            _add_pair(others, sides, shared, reference, candidate)
    for side, other_side, in_reference in (
        (sides.reference, sides.candidate, True),
        (sides.candidate, sides.reference, False),
    ):
        for name, facts in side.tensors.items():
            if not is_loaded(facts) and other_side.by_name.keys().isdisjoint(
                (name, *facts.aliases)
            ):
                others.items.append(_unpaired_item(sides, name, facts, in_reference=in_reference))
    return others


def _namesakes(sides: Sides) -> dict[str, tuple[str, str]]:
    """Return shared name -> the first names of both sides' tensors, each pair once.

    A tied tensor has two namesakes in a release without the tie.
    """
    candidate_names = sides.candidate.by_name
    shared = {
        n: (first[0], candidate_names[n][0])
        for n, first in sides.reference.by_name.items()
        if n in candidate_names
    }
    first: dict[tuple[str, str], str] = {}
    for name, pair in shared.items():
        first.setdefault(pair, name)
    return {name: pair for pair, name in first.items()}


def _add_pair(
    others: OtherTensors, sides: Sides, name: str, reference: WeightFacts, candidate: WeightFacts
) -> None:
    item = compare_tensors(Subject(tensor=name), reference.ref, candidate.ref, sides.pair.values)
    if item.outcome == "differs":
        others.blamed.update(piece.tensor for f in (reference, candidate) for piece in f.pieces)
        item = item.model_copy(
            update={"note": _joined_notes(_origins_note(reference, candidate), item.note)}
        )
    if item.outcome != "identical" or not (is_loaded(reference) or is_loaded(candidate)):
        others.items.append(item)  # otherwise the item of the checkpoint tensor covers it


def _unpaired_item(
    sides: Sides, name: str, facts: WeightFacts, *, in_reference: bool
) -> ItemComparison:
    """Judge a tensor that is not from the checkpoint and has no namesake on the other side."""
    other_side = sides.candidate if in_reference else sides.reference
    subject, ref = Subject(tensor=name), facts.ref
    if ref.hash in other_side.by_hash:
        note = f"the same bytes as {other_side.by_hash[ref.hash]}, its name on the other side"
        return ItemComparison(
            subject=subject, outcome="identical", reference=ref, candidate=ref, note=note
        )
    reference, candidate = (ref, None) if in_reference else (None, ref)
    if facts.kind == "buffer" or facts.origin == "derived":
        note = f"a {facts.origin} {facts.kind} that the other side does not have"
        return unpaired(subject, reference, candidate, note, excused=True)
    cause = _untraced_reason(sides)
    if cause is None:
        note = f"{facts.origin}; no checkpoint tensor"
        return unpaired(subject, reference, candidate, note)
    note = f"no tensor of this name on the other side, and not traced to a checkpoint: {cause}"
    item = unpaired(subject, reference, candidate, note, excused=bool(cause))
    return item.model_copy(update={"outcome": "not compared"})


def _untraced_reason(sides: Sides) -> str | None:
    """Return why a side cannot trace its tensors to a checkpoint; None if both can.

    '' means that no reason was recorded. Without a checkpoint, a fused tensor looks like a missing
    one.
    """
    for capture in (sides.pair.reference, sides.pair.candidate):
        signal = capture.signals.weights
        if signal is not None and not signal.checkpoint_tensors:
            reasons = (s.reason for s in capture.skips if s.what == "weights: origin")
            return next(reasons, reason(capture, "weights"))
    return None


def _origins_note(reference: WeightFacts, candidate: WeightFacts) -> str:
    if reference.origin == candidate.origin:
        return reference.origin
    return f"{reference.origin} in the reference, {candidate.origin} in the candidate"


def _checkpoint_items(sides: Sides, others: OtherTensors) -> Iterator[ItemComparison]:
    """Yield one item for every checkpoint tensor that a side holds."""
    reference, candidate = sides.carriers
    blamed = {sides.root(tensor) for tensor in others.blamed}
    for tensor in dict.fromkeys((*reference, *candidate)):
        reference_carriers, candidate_carriers = (
            reference.get(tensor, []),
            candidate.get(tensor, []),
        )
        if reference_carriers and candidate_carriers:
            yield _carried_item(tensor, reference_carriers, candidate_carriers, sides)
        elif tensor not in blamed:
            yield _one_sided_item(tensor, reference_carriers, candidate_carriers, sides)


def _carried_item(
    tensor: str, reference: list[Carrier], candidate: list[Carrier], sides: Sides
) -> ItemComparison:
    """Compare how both sides hold one checkpoint tensor: bytes, dtype, then part."""
    if tensor in sides.clashes:
        first, second = sides.clashes[tensor]
        return compare_tensors(Subject(tensor=tensor), first.ref, second.ref, sides.pair.values)
    if _dtypes(reference) != _dtypes(candidate):
        return _dtype_item(tensor, reference, candidate, sides)
    same_parts = [_holds_same_parts(dtype, reference, candidate) for dtype in _dtypes(reference)]
    refs = _only_ref(reference), _only_ref(candidate)
    item = ItemComparison(
        subject=Subject(tensor=tensor), outcome="identical", reference=refs[0], candidate=refs[1]
    )
    if all(same_parts) or tensor in sides.constants:
        return item
    note = _two_sided_note("part", _carrier_texts(reference), _carrier_texts(candidate))
    outcome = "differs" if False in same_parts else "not compared"
    return item.model_copy(update={"outcome": outcome, "note": note})


def _dtype_item(
    tensor: str, reference: list[Carrier], candidate: list[Carrier], sides: Sides
) -> ItemComparison:
    subject = Subject(tensor=tensor)
    reference_ref, candidate_ref = _only_whole(reference), _only_whole(candidate)
    if reference_ref is not None and candidate_ref is not None:
        return compare_tensors(subject, reference_ref, candidate_ref, sides.pair.values)
    note = _two_sided_note("dtype", _dtypes(reference), _dtypes(candidate))
    return ItemComparison(subject=subject, outcome="differs", note=note, reason=Reason.DTYPE)


def _one_sided_item(
    tensor: str, reference: list[Carrier], candidate: list[Carrier], sides: Sides
) -> ItemComparison:
    note = (
        f"held by {', '.join(_carrier_texts(reference or candidate))}; "
        "by no tensor on the other side"
    )
    if same := _as_buffer(tensor, reference or candidate, sides, in_reference=bool(reference)):
        return same
    refs = _only_ref(reference), _only_ref(candidate)
    item = unpaired(Subject(tensor=tensor), *refs, note).model_copy(
        update={"outcome": "only in reference" if reference else "only here"}
    )
    cause = _untraced_reason(sides)
    if cause is None:
        return item
    untraced_note = f"{note}, which could not be traced to the checkpoint: {cause or 'no reason'}"
    return item.model_copy(
        update={"outcome": "not compared", "note": untraced_note, "excused": bool(cause)}
    )


def _as_buffer(
    tensor: str, carriers: list[Carrier], sides: Sides, *, in_reference: bool
) -> ItemComparison | None:
    """Return the item of a saved tensor that the other side computes anew, as a buffer of any shape.

    swin's relative_position_index [n, n] of the checkpoint became a buffer [n * n] that is not saved. speecht5's
    frozen table of sines became one of the same name: whether a parameter is trained is for the training step.
    """
    if not all(carrier.is_whole for carrier in carriers):
        return None
    capture = sides.pair.candidate if in_reference else sides.pair.reference
    refs = [carrier.facts.ref for carrier in carriers]
    buffers = capture.signals.buffers or {}
    if any(carrier.facts.kind != "buffer" for carrier in carriers):
        own = {carrier.name for carrier in carriers}
        buffers = {name: facts for name, facts in buffers.items() if name in own}
    for name, facts in buffers.items():
        if all(_same_numbers(ref, facts.ref, sides.pair.values) for ref in refs):
            pair = (refs[0], facts.ref) if in_reference else (facts.ref, refs[0])
            note = f"the same numbers as buffer {name}, which the other side does not save"
            return ItemComparison(
                subject=Subject(tensor=tensor),
                outcome="identical",
                reference=pair[0],
                candidate=pair[1],
                note=note,
            )
    return None


def _same_numbers(first: TensorRef, second: TensorRef, values: TensorSource) -> bool:
    """Return True if two tensors have the same bytes, whatever their shapes."""
    if first.hash == second.hash:
        return True
    if first.dtype != second.dtype or first.numel != second.numel:
        return False
    if not (values.has(first) and values.has(second)):
        return False
    return bool(values.tensor(first).tobytes() == values.tensor(second).tobytes())


def _holds_same_parts(
    dtype: str, reference: list[Carrier], candidate: list[Carrier]
) -> bool | None:
    shapes = [c.facts.ref.shape for c in (*reference, *candidate) if c.is_whole]
    parts = [
        coverage(c.piece.part for c in carriers if c.facts.ref.dtype == dtype)
        for carriers in (reference, candidate)
    ]
    return same_part(parts[0], parts[1], shapes[0] if shapes else None)


def _dtypes(carriers: list[Carrier]) -> list[str]:
    return sorted({carrier.facts.ref.dtype for carrier in carriers})


def _only_ref(carriers: list[Carrier]) -> TensorRef | None:
    return carriers[0].facts.ref if len(carriers) == 1 else None


def _only_whole(carriers: list[Carrier]) -> TensorRef | None:
    """Return the tensor whose bytes all carriers hold, as layers do that start alike; None for several."""
    refs = {carrier.facts.ref.hash for carrier in carriers}
    is_one = len(refs) == 1 and all(carrier.is_whole for carrier in carriers)
    return carriers[0].facts.ref if is_one else None


def _carrier_texts(carriers: list[Carrier]) -> list[str]:
    return [
        f"{carrier.name}{described_piece(carrier.facts, carrier.piece)}" for carrier in carriers
    ]


def described_piece(facts: WeightFacts, piece: Piece) -> str:
    """Return in brackets how a tensor in memory holds a piece, '' if unchanged."""
    phrases = [facts.layout, f"part {piece.part}" if piece.part else ""]
    if piece.transposed and "transpose" not in facts.layout:
        phrases.append("transposed")
    words = ", ".join(filter(None, phrases))
    return f" ({words})" if words else ""


def _two_sided_note(what: str, reference: list[str], candidate: list[str]) -> str:
    return (
        f"{what} {', '.join(reference)} in the reference, {', '.join(candidate)} in the candidate"
    )


def _joined_notes(*notes: str) -> str:
    return "; ".join(filter(None, notes))

"""SB3xx: rules for loading: tensors left unwritten, overwritten, drawn at random, cast, renamed."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.describe import some
from samebits.compare.phases import STORED
from samebits.findings.case import Case, tensors_of
from samebits.findings.packages import missing_packages
from samebits.findings.rule import COMPUTED, RAISED, UNSTABLE, Check, Rule, Sighting, raised
from samebits.findings.tokenizers import side_lines
from samebits.findings.tying import NO_KEYS
from samebits.records.capture import Capture
from samebits.records.provenance import Provenance
from samebits.text.numbers import first_of, plural

_MEANINGS = {
    "derived": "that of a model newly built from the config",
    "unexplained": "neither that of the checkpoint nor that of a newly built model",
}
_MAX_SHOWN = 2
"""Tensors that the evidence of SB309, SB319 and SB323 names."""
_RANDOM = "two loads with two seeds give different values"
_NOT_LOADED_AGAIN = "a new model of this config has other values; a second load, which the run left out, shows chance"
_UNWRITTEN = "it still holds the bytes with which the memory was filled before the load"


def _unwritten_part(provenance: Provenance) -> str:
    if provenance.source == "partly written":
        return f"{provenance.n_unwritten:,} of its elements still hold the bytes of the fill"
    return _UNWRITTEN


def _unwritten_buffers(case: Case) -> Iterator[Sighting]:
    buffers = case.capture.signals.buffers or {}
    for name, tensor in case.tensors():
        if name in buffers and buffers[name].replaced:
            continue
        if tensor.kind == "non-persistent buffer" and tensor.written in ("none", "partly"):
            evidence = [_unwritten_part(tensor)]
            if tensor.fresh == "differs":
                evidence.append("a model newly built from the config has different bytes there")
            evidence.append(
                "loading reported no missing key, because the buffer is not in the state_dict"
            )
            evidence += [
                f"{i.file}:{i.line}: {i.code} — not a remedy: it tests what memory happens to hold"
                for i in case.idioms("truth of a buffer's values")
            ]
            yield Sighting(name, tuple(evidence))


def _unwritten_parameters(case: Case) -> Iterator[Sighting]:
    load = case.capture.signals.load
    missing = load.missing_keys if load is not None else ()
    for name, tensor in case.tensors():
        if tensor.kind == "non-persistent buffer" or tensor.written not in ("none", "partly"):
            continue
        reported = "reported" if name in missing else "did not report"
        report = f"loading {reported} it as a missing key"
        yield Sighting(name, (_unwritten_part(tensor), report))


def _lost_tensors(case: Case) -> Iterator[tuple[str, Provenance]]:
    """Yield the tensors that the checkpoint has and that hold random values after loading."""
    for name, tensor in case.tensors():
        is_lost = tensor.source == "reinitialised" and tensor.ignored
        if is_lost and not _is_outside_state_dict(tensor):
            yield name, tensor


def _overwritten_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that the checkpoint has, and that only a load without _init_weights keeps."""
    for name, tensor in case.tensors():
        if tensor.restored_without == _INIT:
            value = _MEANINGS.get(tensor.source)
            meaning = f"its value is {value}" if value else _RANDOM
            lines = (_different_bytes(name, tensor), meaning, _tried(tensor))
            yield Sighting(name, (*lines, *_init_weights(case)))


def _replaced_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that are lost, and that a load without _init_weights does not keep."""
    missing = _missing(case)
    for name, tensor in _lost_tensors(case):
        if tensor.restored_without != _INIT and name not in missing:
            yield Sighting(name, (_different_bytes(name, tensor), _RANDOM, _tried(tensor)))


def _converted_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors of the checkpoint that loading gives other names, so that the model's own class does not get them."""
    missing, load = _missing(case), case.capture.signals.load
    names = [name for name, _ in _lost_tensors(case) if name in missing]
    if not names or load is None:
        return
    n, them = plural(len(names), "tensor"), "them" if names[1:] else "it"
    lost = (
        f"loading reported {n} as missing, and the checkpoint has {them}: {some(names, _MAX_SHOWN)}"
    )
    left = f"unexpected names: {some(load.unexpected_keys, _MAX_SHOWN)}"
    yield Sighting(names[0], (lost, *([left] if load.unexpected_keys else ()), _RANDOM))


_INIT = ("_init_weights",)


def _tried(tensor: Provenance) -> str:
    """Return what was left out of a load to find the step that replaces a tensor."""
    if tensor.restored_without is None:
        return "possible causes are listed, not tried: the run left out further loads, or the model is too large"
    if not tensor.restored_without:
        return "tried: neither without _init_weights nor without or with turned ties is it kept"
    if tensor.restored_without == ("_tied_weights_keys",):
        turned = "with _tied_weights_keys turned round, target for source"
        return f"tried: {turned}, it holds the checkpoint's bytes"
    steps = " and ".join(f"{step}()" for step in tensor.restored_without)
    return f"tried: with {steps} replaced by nothing, it holds the checkpoint's bytes"


def _ignored_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that the checkpoint has and loading leaves to values that the model computes, or drops."""
    yield from _dropped_tensors(case)
    for name, tensor in case.tensors():
        if not tensor.ignored or tensor.restored_without == _INIT:
            continue
        evidence = [_different_bytes(name, tensor)]
        if tensor.source in _MEANINGS:
            evidence.append(f"its value is {_MEANINGS[tensor.source]}")
        elif tensor.source == "reinitialised" and _is_outside_state_dict(tensor):
            evidence.append(_RANDOM)
        else:
            continue
        if _is_outside_state_dict(tensor):
            evidence += [
                "the buffer is not in the state_dict",
                _unexpected_key(case, tensor.stored_as or name),
            ]
        elif tensor.restored_without is None:
            # a load without _init_weights, which is left out, may show that it is SB303
            evidence += [_tried(tensor), *_init_weights(case)]
        yield Sighting(name, tuple(evidence))


def _dropped_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that are parameters on one side and nothing on the other, where the outputs differ, too."""
    if not (case.has_diverged and any(map(case.moves, ("logits", "outputs", "decode")))):
        return
    for side, counterpart, of_reference in case.sides():
        weights = side.signals.weights
        tied = {alias for facts in side.signals.tensors.values() for alias in facts.aliases}
        unused = set(weights.unused if weights is not None else ()) - tied - _replaced(side)
        unused -= _unlisted(side)
        held = [
            piece.tensor
            for facts in counterpart.signals.tensors.values()
            for piece in facts.pieces
            if facts.kind == "parameter" and piece.tensor in unused
        ]
        if names := list(dict.fromkeys(held)):
            n, it = plural(len(names), "tensor"), "each" if names[1:] else "it"
            lost = f"{n} of the checkpoint into no parameter: {some(names, _MAX_SHOWN)}"
            evidence = (
                f"{side.cell.stack} puts {lost}",
                f"{counterpart.cell.stack} puts {it} into one",
            )
            yield Sighting(names[0], evidence, of_reference=of_reference)


def _replaced(side: Capture) -> set[str]:
    """Return the tensors of the checkpoint that a model has under their name with other bytes, which findings of their own name."""
    tensors = tensors_of(side).items()
    return {facts.stored_as or name for name, facts in tensors if facts.ignored}


def _is_outside_state_dict(tensor: Provenance) -> bool:
    """Return True if the tensor is in no state_dict, so that no load reads it from a file."""
    return tensor.kind == "non-persistent buffer"


def _different_bytes(name: str, tensor: Provenance) -> str:
    place = f"as {name}" if tensor.stored_as else "under that name"
    return (
        f"the checkpoint has {tensor.stored_as or name}, and the model has different bytes {place}"
    )


def _unexpected_key(case: Case, key: str) -> str:
    load = case.capture.signals.load
    reported = load is not None and key in load.unexpected_keys
    return f"loading {'reported' if reported else 'did not report'} it as an unexpected key"


def _init_weights(case: Case) -> Iterator[str]:
    for fact in case.classes:
        for call in fact.calls.get("_init_weights", ()):
            if call.endswith((".data.normal_", ".data.zero_", ".data.fill_", ".data.uniform_")):
                yield (
                    f"{fact.file}: {fact.name}._init_weights calls {call}, "
                    "which overwrites loaded tensors"
                )


def _missing_parameters(case: Case) -> Iterator[Sighting]:
    """Find parameters that the checkpoint lacks and that are drawn at random at every load.

    Without a second load, as under ``--quick``, those that hold other values than a new model.
    """
    missing = _missing(case)
    for name, tensor in case.tensors():
        if name not in missing or tensor.ignored:
            continue
        lacks = f"the checkpoint does not contain {name}, and loading reported it as missing"
        if tensor.source == "reinitialised":
            yield Sighting(name, (lacks, _RANDOM))
        elif _is_unlike_a_new_model(tensor):
            yield Sighting(name, (lacks, _NOT_LOADED_AGAIN))


def _missing(case: Case) -> set[str]:
    """Return the names that loading reported as missing from the checkpoint."""
    load = case.capture.signals.load
    return set(load.missing_keys) if load is not None else set()


def _is_unlike_a_new_model(tensor: Provenance) -> bool:
    """Return True for values of unknown origin that no second load was compared with."""
    is_open = tensor.source == "unexplained" and tensor.steady is None
    return is_open and tensor.fresh == "differs"


def _default_dtype(case: Case) -> Iterator[Sighting]:
    candidate = case.capture.signals.integrity
    reference = case.reference.signals.integrity if case.reference is not None else None
    if candidate is None or reference is None or case.reference is None:
        return
    stacks = case.capture.cell.stack, case.reference.cell.stack
    dtypes = [sorted(side.default_dtypes or ()) for side in (candidate, reference)]
    if all(dtypes) and dtypes[0] != dtypes[1]:
        sides = zip(stacks, dtypes, strict=True)
        lines = (f"{stack}: parameters in {', '.join(names)}" for stack, names in sides)
        no_verdict = "samebits passes a dtype to every load, so no verdict depends on this"
        yield Sighting("from_pretrained without dtype", (*lines, no_verdict))


def _changed_copy(case: Case) -> Iterator[Sighting]:
    return _round_trip(case, "differs")


def _failed_copy(case: Case) -> Iterator[Sighting]:
    return _round_trip(case, "save failed", "load failed")


def _round_trip(case: Case, *outcomes: str) -> Iterator[Sighting]:
    integrity = case.capture.signals.integrity
    trip = integrity.round_trip if integrity is not None else None
    if trip is None or trip.outcome not in outcomes:
        return
    if missing_packages(trip.reason):
        return  # SB318 names the package
    evidence = [f"save_pretrained, then from_pretrained in the same environment: {trip.outcome}"]
    if trip.reason:
        evidence.append(trip.reason)
    if trip.tensors:
        evidence.append(f"different bytes: {', '.join(trip.tensors[:6])}")
    if trip.config:
        evidence.append(f"config: {', '.join(trip.config[:6])}")
    if trip.logits != "not compared":
        evidence.append(f"logits: {trip.logits}")
    follows = frozenset({"SB401"} if NO_KEYS in trip.reason else ())
    yield Sighting("save_pretrained", tuple(evidence), follows=follows)


def _renamed_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that have the file's name in the reference's memory and a different one here."""
    if case.reference is None:
        return
    reference_names, candidate_names = map(_names_in_memory, (case.reference, case.capture))
    renamed = [
        tensor
        for tensor, name in reference_names.items()
        if name == tensor and candidate_names.get(tensor, tensor) != tensor
    ]
    if renamed:
        examples = (f"{tensor} is in {candidate_names[tensor]}" for tensor in renamed[:_MAX_SHOWN])
        count = (
            f"{len(renamed)} of {len(reference_names)} tensors of the checkpoint "
            "have a different name in memory"
        )
        yield Sighting("names in memory", (count, *examples))


def _names_in_memory(capture: Capture) -> dict[str, str]:
    """Return tensor of the file -> its name in memory, preferring the same name."""
    names_in_memory: dict[str, str] = {}
    weights = capture.signals.tensors
    names = set(weights) | {alias for facts in weights.values() for alias in facts.aliases}
    for name, facts in weights.items():
        for piece in facts.pieces if facts.origin == "loaded" else ():
            memory_name = piece.tensor if piece.tensor in names else name
            names_in_memory.setdefault(piece.tensor, memory_name)
    return names_in_memory


def _lost_adapter(case: Case) -> Iterator[Sighting]:
    """Find tensors of an adapter that are not in the model.

    A load may convert some: then the model has none of their names that is random or of their shape.
    """
    signal = case.capture.signals.weights
    if signal is None or not signal.adapter_lost:
        return
    parts = [name for name in signal.tensors if "default" in name.split(".")]
    random = [name for name in parts if signal.tensors[name].origin == "reinitialised"]
    lost = [name for name, own in signal.adapter_lost.items() if own or random or not parts]
    if not lost:
        return
    evidence = [f"no tensor of the model holds the bytes of {name}" for name in lost[:_MAX_SHOWN]]
    if (n_more := len(lost) - _MAX_SHOWN) > 0:
        evidence.append(f"{n_more} more tensors of the adapter")
    if not parts:
        evidence.append("the model has no part of an adapter: without peft a load leaves it out")
    evidence += [f"every load gives {name} other random values" for name in random[:_MAX_SHOWN]]
    yield Sighting(signal.adapter_lost[lost[0]] or lost[0], tuple(evidence))


def _unlisted_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that shards hold, the index leaves out, and loading does not read.

    From 5.0 on a load reads whole shards, and 4.x what the index names: neither can know that a tensor is meant.
    """
    for name, tensor in _left_out_of_index(case):
        stored = tensor.stored_as or name
        evidence = [f"a shard of the checkpoint holds {stored}, and the index does not name it"]
        if tensor.source == "reinitialised":
            evidence.append(_RANDOM)
        yield Sighting(name, tuple(evidence))


def _left_out_of_index(case: Case) -> Iterator[tuple[str, Provenance]]:
    unlisted = _unlisted(case.capture)
    for name, tensor in case.tensors():
        if tensor.ignored and (tensor.stored_as or name) in unlisted:
            yield name, tensor


def _unlisted(capture: Capture) -> set[str]:
    weights = capture.signals.weights
    return set(weights.unlisted if weights is not None else ())


def _in_index(check: Check) -> Check:
    """Return a check without the tensors that are not loaded because the index leaves them out."""

    def listed(case: Case) -> Iterator[Sighting]:
        left_out = {name for name, _ in _left_out_of_index(case)}
        yield from (sighting for sighting in check(case) if sighting.where not in left_out)

    return listed


_META_READ = raised(
    "RuntimeError|TypeError|NotImplementedError",
    r"Tensor\.item\(\) cannot be called on meta tensors|can't convert meta device type tensor"
    r"|with a meta device context manager|Cannot copy out of meta tensor"
    r"|on device meta is not on the expected device|is not on the expected device meta",
)


_ON_DISK = 'device_map={"": "disk"}'


def _trained_in_one(case: Case) -> Iterator[Sighting]:
    """Find tensors that are trained in one release, and frozen or buffers in the other."""
    if case.reference is None:
        return
    before, after = _kinds(case.reference), _kinds(case.capture)
    moved: dict[tuple[str, str], list[str]] = {}
    for name in before.keys() & after.keys():
        if (before[name] is _TRAINED) is not (after[name] is _TRAINED):
            moved.setdefault((before[name], after[name]), []).append(name)
    for kinds, names in sorted(moved.items()):
        where = ", ".join(first_of(sorted(names), _MAX_SHOWN, "tensor"))
        yield Sighting(where, side_lines(case, *kinds))


_TRAINED, _BUFFER = "a parameter that is trained", "a buffer"


def _kinds(capture: Capture) -> dict[str, str]:
    """Return what each tensor is for an optimizer, under all of its names."""
    weights = capture.signals.weights
    if weights is None:
        return {}
    kinds = {
        name: _TRAINED if facts.kind == "parameter" else _BUFFER
        for first, facts in weights.tensors.items()
        for name in (first, *facts.aliases)
    }
    kinds |= dict.fromkeys(weights.frozen, "a frozen parameter")
    return kinds | dict.fromkeys(capture.signals.buffers or {}, _BUFFER)


def _values_in_init(case: Case) -> Iterator[Sighting]:
    """Find a value read from the meta device, but not in the move of a model that is loaded already.

    Forward reads a tensor that ``__init__`` keeps as a plain attribute. A move of the model reads one that the load left
    without a value: an embedding of which the file has the tied head alone. A model that is loaded onto disk has its
    weights in files, and meta tensors in their place.
    """
    if case.failure is None or _ON_DISK in case.failure.phase:
        return
    frames = case.frames
    if not (frames and frames[0].function == "to" and not any(f.own for f in frames)):
        yield from _META_READ(case)


def _rounded_weights(case: Case) -> Iterator[Sighting]:
    """Find weights that one side rounds to a dtype which its load does not ask for."""
    casts = [c for c in (case.ladder.constants if case.ladder else ()) if c.signal == "weights"]
    for side, counterpart, of_reference in case.sides():
        load, role = side.signals.load, "reference" if of_reference else "candidate"
        if load is None or load.requested_dtype.removeprefix("torch.") != _WHOLE:
            continue
        weights = side.signals.tensors
        rounded = {
            c.name: weights[c.name].ref.dtype
            for c in casts
            if c.kind == "cast" and c.coarser == role and c.name in weights
        }
        names = [name for name, dtype in rounded.items() if dtype in _HALVES]
        if names:
            dtypes = " and ".join(sorted({rounded[name] for name in names}))
            lines = (
                f"{side.cell.stack} asks for {_WHOLE} and holds in {dtypes}: {some(names, _MAX_SHOWN)}",
                f"{counterpart.cell.stack} holds {'them' if names[1:] else 'it'} whole, of which these are the rounded numbers",
            )
            # what diverges has another cause: float64 computes with whole numbers on both sides
            of_prompts = () if case.has_diverged else None
            yield Sighting(names[0], lines, of_reference=of_reference, of_prompts=of_prompts)


_WHOLE, _HALVES = "float32", frozenset({"bfloat16", "float16"})

RULES = (
    Rule("SB301", _unwritten_buffers, explains=UNSTABLE | STORED | COMPUTED),
    Rule("SB302", _unwritten_parameters, explains=UNSTABLE | STORED | COMPUTED),
    Rule("SB303", _in_index(_overwritten_tensors), explains=UNSTABLE | STORED),
    Rule("SB304", _in_index(_missing_parameters), explains=UNSTABLE | STORED),
    Rule("SB305", _values_in_init, explains=RAISED),
    Rule("SB306", _default_dtype),
    Rule("SB307", _changed_copy),
    Rule("SB308", _in_index(_ignored_tensors), explains=STORED),
    Rule("SB309", _renamed_tensors),
    Rule("SB310", _in_index(_replaced_tensors), explains=UNSTABLE | STORED),
    Rule("SB317", _failed_copy),
    Rule("SB319", _lost_adapter, explains=STORED),
    Rule("SB966", _trained_in_one),
    Rule("SB323", _in_index(_converted_tensors), explains=UNSTABLE | STORED),
    Rule("SB322", _unlisted_tensors, explains=UNSTABLE | STORED),
    Rule("SB980", _rounded_weights, explains=STORED | COMPUTED),
)

"""SB5xx: rules for rotary position embeddings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from samebits.compare.phases import STORED
from samebits.findings.case import Case, tensors_of
from samebits.findings.rule import COMPUTED, RAISED, Rule, Sighting, of_exception
from samebits.records.capture import Capture, ConfigField, InvFreqFacts
from samebits.records.finding import ROPE_TABLES

_SHARE = "partial_rotary_factor"
_FILLED = ("rope_theta", "rope_type")
"""What 5.x writes into an empty ``rope_scaling``."""


def _default_key(case: Case) -> Iterator[Sighting]:
    """Find a lookup of ROPE_INIT_FUNCTIONS["default"], not of other tables with such a key."""
    if case.raised("KeyError", r"^'?default'?$") is None:
        return
    frame = case.frame(own=True) or case.frame(own=False)
    if frame is not None and ("ROPE_INIT" in frame.code or "rope" in frame.code.lower()):
        yield Sighting(case.raised_at(), case.exception_lines())


def _filled_scaling(case: Case) -> Iterator[Sighting]:
    """Find a key of ``rope_scaling`` that the model's code reads, and that only the reference does not ask for."""
    match = case.raised("KeyError", r"^'?(\w+)'?$")
    if match is None or not case.frames or not case.frames[-1].own or match[1] in _FILLED:
        return
    exception = case.reference.raised if case.reference is not None else None
    if case.reference is None or (exception is not None and exception.type == "KeyError"):
        return
    if re.search(rf"(?i)scaling\w*\[\s*['\"]{match[1]}['\"]\s*\]", case.frames[-1].code):
        yield Sighting(case.raised_at(), case.exception_lines())


def _no_head_dim(case: Case) -> Iterator[Sighting]:
    """Find a function of a rope type that multiplies ``head_dim``, which the config class leaves at None."""
    if case.raised("TypeError", r"^unsupported operand type\(s\) for \*: 'NoneType' and") is None:
        return
    last = case.frames[-1] if case.frames else None
    if (
        last is not None
        and last.file.endswith("modeling_rope_utils.py")
        and "head_dim" in last.code
    ):
        yield Sighting("head_dim", case.exception_lines())


def _is_off_formula(facts: InvFreqFacts) -> bool:
    formula = facts.formula
    if formula is None or formula.max_ulp is None or formula.bound_ulp is None:
        return False
    return formula.max_ulp > formula.bound_ulp


def _inv_freq(capture: Capture | None) -> dict[str, InvFreqFacts]:
    return dict(capture.signals.inv_freq or {}) if capture is not None else {}


def _wrong_frequencies(case: Case) -> Iterator[Sighting]:
    """Find frequencies off their formula; without a buffer of them, changed cos and sin."""
    sightings = [*_off_formula(case), *_whole_heads(case)]
    yield from sightings
    differs = case.ruled_in(ROPE_TABLES) if not sightings and not _inv_freq(case.capture) else ""
    for idiom in case.idioms("default for a rope field") if differs else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (idiom.code, f"cos and sin: {differs}"))


def _off_formula(case: Case) -> Iterator[Sighting]:
    """Find frequencies off their formula on one side, where those of the other side are right."""
    for side, counterpart, of_reference in case.sides():
        right = _inv_freq(counterpart)
        if not right or any(map(_is_off_formula, right.values())):
            continue
        if of_reference and (case.classes or not _asks_alike(case)):
            continue  # code of the model's own may have a formula of its own, which a release replaces
        unwritten = {n for n, t in tensors_of(side).items() if t.written in ("none", "partly")}
        for name, facts in _inv_freq(side).items():
            if name in unwritten or not _is_off_formula(facts) or facts.formula is None:
                continue
            lines = (
                (
                    f"{facts.formula.max_ulp:,.0f} ULP from the formula of rope type "
                    f"{facts.formula.rope_type} with the settings of the effective config; float32 "
                    f"rounding explains {facts.formula.bound_ulp:,.0f} at most"
                ),
                f"in {counterpart.cell.stack} the frequencies match their formula",
                *(f"{i.file}:{i.line}: {i.code}" for i in case.idioms("default for a rope field")),
            )
            yield Sighting(name, lines, of_reference=of_reference)


def _asks_alike(case: Case) -> bool:
    """Return True if both sides load one rope type for each buffer, and one base."""
    sides = [side for side, *_ in case.sides()]
    types = [{name: facts.rope_type for name, facts in _inv_freq(side).items()} for side in sides]
    configs = [side.signals.config or {} for side in sides]
    bases = [
        [_one_base(part) for _, part, _ in _with_sub_configs("", config, config)]
        for config in configs
    ]
    return types[0] == types[-1] and bases[0] == bases[-1]


def _whole_heads(case: Case) -> Iterator[Sighting]:
    """Find a side that rotates all of head_dim, where config.json has a part and the other side rotates that part.

    ``bamba`` of 5.0 to 5.13: ``compute_default_rope_parameters`` in models/bamba/modeling_bamba.py.
    """
    used = case.capture.signals.config_use or {}
    written = {path: field.written for path, field in used.items() if path.endswith(_SHARE)}
    shares = {path: share for path, share in written.items() if isinstance(share, float)}
    sizes = {*_head_sizes(case.capture.signals.config or {})}
    for side, counterpart, of_reference in case.sides():
        for name, facts in _inv_freq(side).items():
            partial = _inv_freq(counterpart).get(name)
            whole, part = (2 * math.prod(f.ref.shape) if f else 0 for f in (facts, partial))
            path = next((p for p, share in shares.items() if int(whole * share) == part), "")
            if not path or part in (0, whole) or whole not in sizes:
                continue
            lines = (
                f"config.json has {path}: {shares[path]}",
                f"{side.cell.stack} rotates all {whole} dimensions of a head",
                f"{counterpart.cell.stack} rotates {part} of them",
            )
            yield Sighting(name, lines, of_reference=of_reference)


def _head_sizes(config: dict[str, Any]) -> Iterator[int]:
    """Yield the dimension of a head that a config has, and that each config in it has."""
    size, hidden, heads = (
        config.get(k) for k in ("head_dim", "hidden_size", "num_attention_heads")
    )
    if isinstance(size, int):
        yield size
    elif isinstance(hidden, int) and isinstance(heads, int) and heads:
        yield hidden // heads
    for part in config.values():
        if isinstance(part, dict):
            yield from _head_sizes(part)


def _theta_for_some(case: Case) -> Iterator[Sighting]:
    """Find a base of the reference's config that some kinds of layers get, and others do not.

    A base that any other field of the reference's config gives, such as ``rope_local_base_freq``, is none.
    """
    reference = case.reference.signals.config if case.reference is not None else None
    candidate = case.capture.signals.config
    if case.reference is None or reference is None or candidate is None:
        return
    for where, before, after in _with_sub_configs("", reference, candidate):
        base, known = _one_base(before), {*_numbers(before)}
        bases = _bases_by_kind(after)
        strange = {kind: value for kind, value in bases.items() if value not in known}
        if base is None or base not in bases.values() or not strange:
            continue
        yield Sighting(
            f"{where}rope_parameters",
            (
                *(f"rope_theta of {kind}: {value}" for kind, value in bases.items()),
                f"{case.reference.cell.stack} has {base} for all layers",
            ),
        )


def _lost_base(case: Case) -> Iterator[Sighting]:
    """Find a rope_theta of the config by which one side rotates, and which is not in the other's rope_parameters."""
    if case.outcome("inv_freq") != "differs":
        return
    for side, counterpart, of_reference in case.sides():
        frequencies = (*_inv_freq(side).values(), *_inv_freq(counterpart).values())
        fields = side.signals.config_use or {}
        if not frequencies or any(map(_is_off_formula, frequencies)):
            continue
        sides = side.signals.config or {}, counterpart.signals.config or {}
        for where, lost, kept in _with_sub_configs("", *sides):
            base, rope = _one_base(kept), lost.get("rope_parameters")
            bases = {*_bases(rope)} if isinstance(rope, dict) else set()
            written = fields.get(f"{where}rope_theta")
            asked = lost.get("rope_theta") if written is None else written.written
            if not bases or base is None or base != asked or base in bases:
                continue
            if not bases & _written_bases(where, fields):
                lines = (
                    f"{counterpart.cell.stack} rotates by {where}rope_theta: {asked}",
                    f"{side.cell.stack} loads {where}rope_parameters: {json.dumps(rope)}",
                )
                yield Sighting(f"{where}rope_theta", lines, of_reference=of_reference)


def _written_bases(where: str, fields: Mapping[str, ConfigField]) -> set[object]:
    """Return the bases that config.json itself has in dicts of rope settings."""
    prefixes = tuple(f"{where}{name}." for name in ("rope_parameters", "rope_scaling"))
    return {field.written for path, field in fields.items() if path.startswith(prefixes)}


def _with_sub_configs(
    path: str, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    yield path, before, after
    for field in sorted(before.keys() & after.keys()):
        pair = before[field], after[field]
        if all(isinstance(value, dict) and "model_type" in value for value in pair):
            yield from _with_sub_configs(f"{path}{field}.", *pair)


def _one_base(config: dict[str, Any]) -> float | None:
    """Return the one base that a config has for all its layers; None if it has none, or several."""
    rope = config.get("rope_parameters")
    base = rope.get("rope_theta") if isinstance(rope, dict) else config.get("rope_theta")
    return float(base) if isinstance(base, (int, float)) else None


def _bases_by_kind(config: dict[str, Any]) -> dict[str, float]:
    """Return the base of each kind of layer, for a config that has them apart."""
    rope = config.get("rope_parameters")
    kinds = rope.items() if isinstance(rope, dict) else ()
    bases = {kind: of.get("rope_theta") for kind, of in kinds if isinstance(of, dict)}
    return {kind: float(base) for kind, base in bases.items() if isinstance(base, (int, float))}


def _numbers(value: object) -> Iterator[float]:
    """Yield each number of a value of JSON."""
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)


def _unread_parameters(case: Case) -> Iterator[Sighting]:
    """Find rope_parameters of config.json beside flat fields with other values, which give the frequencies.

    A class of 5.x may have the flat field, too, as a default that nothing reads: its frequencies are those of
    rope_parameters, or of their type. Where a class of 4.x needs the flat field, its constructor raises.
    """
    yield from _missed_scaling(case)
    frequencies = _inv_freq(case.capture).values()
    is_off = any(map(_is_off_formula, frequencies))
    kinds = {facts.formula.rope_type for facts in frequencies if facts.formula is not None}
    config = case.capture.signals.config
    for where, part, _ in _with_sub_configs("", config or {}, config or {}):
        rope, base = part.get("rope_parameters"), part.get("rope_theta")
        if not isinstance(rope, dict) or not isinstance(base, (int, float)):
            continue
        bases = dict.fromkeys(_bases(rope))
        kind, scaling = rope.get("rope_type", "default"), part.get("rope_scaling")
        other_base = is_off and bases and float(base) not in bases
        # 5.x has no such field: rope_scaling of a class of its own is rope_parameters there
        has_none = "rope_scaling" in part and not scaling
        other_kind = kind != "default" and has_none and (is_off or (kinds and kind not in kinds))
        if other_base or other_kind:
            lines = (
                f"config.json has {where}rope_parameters: {json.dumps(rope)}",
                f"loaded: rope_theta {base}, rope_scaling {json.dumps(scaling)}",
            )
            yield Sighting(f"{where}rope_parameters", lines)


def _missed_scaling(case: Case) -> Iterator[Sighting]:
    """Find library code that misses rope_scaling, where the reference reads rope_parameters."""
    frame = case.frame(own=False)
    if frame is None or "rope_scaling" not in frame.code or case.frame(own=True) is not None:
        return
    config = case.reference.signals.config if case.reference is not None else None
    reads_other = any(
        isinstance(part.get("rope_parameters"), dict)
        for _, part, _ in _with_sub_configs("", config or {}, config or {})
    )
    if reads_other and case.raised("AttributeError|TypeError", "NoneType"):
        yield Sighting("rope_parameters", case.exception_lines())


def _bases(rope: dict[str, Any]) -> Iterator[float]:
    """Yield the bases of rope_parameters: one for all layers, or one for each kind of layer."""
    for part in (rope, *rope.values()):
        base = part.get("rope_theta") if isinstance(part, dict) else None
        if isinstance(base, (int, float)):
            yield float(base)


def _changed_dtype(case: Case) -> Iterator[Sighting]:
    reference = _inv_freq(case.reference)
    for name, facts in _inv_freq(case.capture).items():
        expected = reference.get(name)
        if expected is None or case.reference is None or facts.ref.dtype == expected.ref.dtype:
            continue
        line = f"{facts.ref.dtype} in the candidate, {expected.ref.dtype} in {case.reference.cell.stack}"
        yield Sighting(name, (line,))


RULES = (
    Rule("SB501", _default_key, explains=RAISED),
    of_exception(
        "SB502",
        "TypeError|AttributeError",
        r"RotaryEmbedding(\.__init__\(\) (got an unexpected|missing)|\.forward\(\) missing .*layer_type|.*None_inv_freq)",
    ),
    Rule("SB503", _wrong_frequencies, explains=STORED | COMPUTED),
    Rule("SB504", _changed_dtype, explains=STORED | COMPUTED),
    Rule("SB505", _theta_for_some, explains=STORED | COMPUTED),
    Rule("SB506", _unread_parameters, explains=STORED | COMPUTED | RAISED),
    Rule("SB507", _filled_scaling, explains=RAISED),
    Rule("SB508", _lost_base, explains=STORED | COMPUTED),
    Rule("SB509", _no_head_dim, explains=RAISED),
)

"""SB5xx: rules for rotary position embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.phases import STORED
from samebits.findings.rule import COMPUTED, RAISED, Rule, Sighting, raised
from samebits.records.finding import ROPE_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture, InvFreqFacts


def _default_key(case: Case) -> Iterator[Sighting]:
    """Find a lookup of ROPE_INIT_FUNCTIONS["default"], not of other tables with such a key."""
    if case.raised("KeyError", r"^'?default'?$") is None:
        return
    frame = case.frame(own=True) or case.frame(own=False)
    if frame is not None and ("ROPE_INIT" in frame.code or "rope" in frame.code.lower()):
        yield Sighting(case.raised_at(), case.exception_lines())


def _is_off_formula(facts: InvFreqFacts) -> bool:
    formula = facts.formula
    if formula is None or formula.max_ulp is None or formula.bound_ulp is None:
        return False
    return formula.max_ulp > formula.bound_ulp


def _inv_freq(capture: Capture | None) -> dict[str, InvFreqFacts]:
    return dict(capture.signals.inv_freq or {}) if capture is not None else {}


def _wrong_frequencies(case: Case) -> Iterator[Sighting]:
    """Find frequencies off their formula; without a buffer of them, changed cos and sin."""
    sightings = list(_off_formula(case))
    yield from sightings
    differs = case.ruled_in(ROPE_TABLES) if not sightings and not _inv_freq(case.capture) else ""
    for idiom in case.idioms("default for a rope field") if differs else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (idiom.code, f"cos and sin: {differs}"))


def _off_formula(case: Case) -> Iterator[Sighting]:
    """Find frequencies off their formula in the candidate, where the reference's are right."""
    reference = _inv_freq(case.reference)
    if case.reference is None or not reference or any(map(_is_off_formula, reference.values())):
        return
    unwritten = {n for n, t in case.tensors() if t.written in ("none", "partly")}
    for name, facts in _inv_freq(case.capture).items():
        if name in unwritten or not _is_off_formula(facts) or facts.formula is None:
            continue
        yield Sighting(
            name,
            (
                (
                    f"{facts.formula.max_ulp:,.0f} ULP from the formula of rope type "
                    f"{facts.formula.rope_type} with the settings of the effective config; float32 "
                    f"rounding explains {facts.formula.bound_ulp:,.0f} at most"
                ),
                f"in {case.reference.cell.stack} the frequencies match their formula",
                *(f"{i.file}:{i.line}: {i.code}" for i in case.idioms("default for a rope field")),
            ),
        )


def _changed_dtype(case: Case) -> Iterator[Sighting]:
    reference = _inv_freq(case.reference)
    for name, facts in _inv_freq(case.capture).items():
        expected = reference.get(name)
        if expected is None or case.reference is None or facts.ref.dtype == expected.ref.dtype:
            continue
        line = f"{facts.ref.dtype} here, {expected.ref.dtype} in {case.reference.cell.stack}"
        yield Sighting(name, (line,))


RULES = (
    Rule("SB501", _default_key, explains=RAISED),
    Rule(
        "SB502",
        raised("TypeError", r"RotaryEmbedding\.__init__\(\) (got an unexpected|missing)"),
        explains=RAISED,
    ),
    Rule("SB503", _wrong_frequencies, explains=STORED | COMPUTED),
    Rule("SB504", _changed_dtype, explains=STORED | COMPUTED),
)

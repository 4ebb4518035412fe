"""SB5xx: rules for rotary position embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import ROPE_TABLES, RuleText

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
                    f"{facts.formula.rope_type} with the settings of the effective config; rounding "
                    f"explains {facts.formula.bound_ulp:,.0f} at most"
                ),
                f"in {case.reference.cell.stack} the frequencies keep to their formula",
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
    Rule(
        RuleText(
            code="SB501",
            name="ROPE_INIT_FUNCTIONS has no 'default'",
            kind="crash",
            looks_for="KeyError: 'default' raised by a line that speaks of rope",
            cause="5.0 moved the default formula from the table into a static method of each rotary "
            "class, compute_default_rope_parameters.",
            remedy="Fall back to a function of your own.",
            example="def default_rope(config, device=None, **_):\n"
            "    dim, theta = head_dim_of(config), rope_theta_of(config)\n"
            "    steps = torch.arange(0, dim, 2, dtype=torch.int64, device=device).float()\n"
            "    return 1.0 / theta ** (steps / dim), 1.0\n\n"
            "rope_init = ROPE_INIT_FUNCTIONS.get(rope_type, default_rope)",
            releases="5.0.0 and later; through 4.57 it is there",
            references=("transformers/modeling_rope_utils.py",),
        ),
        _default_key,
    ),
    Rule(
        RuleText(
            code="SB502",
            name="the library's rotary embedding takes other arguments",
            kind="crash",
            looks_for="TypeError on a …RotaryEmbedding's constructor",
            cause="5.23 dropped the device argument; before that, device='cpu' inside __init__ "
            "fails under 5.x's meta device.",
            remedy="Call it with config alone: LlamaRotaryEmbedding(config=config).",
            example="self.rotary_emb = LlamaRotaryEmbedding(config=config)",
            releases="device='cpu' in __init__: 5.0.0 to 5.15 'Cannot copy out of meta tensor' "
            "(SB305), 5.23 TypeError",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        raised("TypeError", r"RotaryEmbedding\.__init__\(\) (got an unexpected|missing)"),
    ),
    Rule(
        RuleText(
            code="SB503",
            name="the rotary frequencies are not those of the config",
            kind="silent",
            looks_for="inv_freq further from the closed formula (float64, settings of the effective "
            "config) than float32 rounding explains, while the reference's keep to theirs; an "
            "unwritten buffer is SB301 and not this. Where no buffer holds the frequencies: cos and sin "
            "ruled in by the hunt beside a getattr with a default for a rope field",
            cause="The code reads rope settings from where this release does not put them: "
            "getattr(config, 'rope_theta', 10000.0) under 5.x, or a release that drops a setting on "
            "the way (partial factor, original length, settings per layer type).",
            remedy="Own code: read config.rope_parameters first, then the flat field, and let a "
            "missing one raise. Library code: write the settings in the form that this release "
            "reads, and report it.",
            example='rope = getattr(config, "rope_parameters", None) or {}\n'
            'theta = rope["rope_theta"] if "rope_theta" in rope else config.rope_theta',
            releases="own code: 5.0.0 and later. Stock models that this project found: docs/found.md",
            references=("https://github.com/deepspeedai/DeepSpeed/issues/8345",),
        ),
        _wrong_frequencies,
    ),
    Rule(
        RuleText(
            code="SB504",
            name="the rotary frequencies are held in another dtype",
            kind="rounding",
            looks_for="inv_freq in another dtype than in the reference",
            cause="A model cast with .to(dtype) casts inv_freq, one loaded in that dtype does not; or "
            "the code casts it to a dtype that it reads where only some releases keep it: config.dtype "
            "is torch_dtype before 4.56. Positions in bfloat16 are the same number in bunches.",
            remedy="Keep the frequencies in float32 whatever the model is: load in the dtype instead of "
            "casting, and cast cos and sin, not the frequencies.",
            releases="all",
            references=(
                "transformers/configuration_utils.py, dtype",
                "tests/custom/inv-freq-dtype.repair.diff",
            ),
        ),
        _changed_dtype,
    ),
)

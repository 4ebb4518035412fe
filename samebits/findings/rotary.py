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
    Rule(
        RuleText(
            code="SB501",
            name="ROPE_INIT_FUNCTIONS has no 'default'",
            kind="crash",
            looks_for="KeyError: 'default', raised by a line with \"rope\" in it",
            cause='Up to 4.57 `ROPE_INIT_FUNCTIONS["default"]` is the plain rope formula. 5.0 '
            "removed this entry; each rotary class now has a static method, "
            "compute_default_rope_parameters. The lookup raises KeyError. Affected: custom models "
            "that copied the rotary embedding of a 4.x model.",
            remedy="Use a function of your own if the table has no such entry.",
            example="def default_rope(config, device=None, **_):\n"
            "    dim, theta = head_dim_of(config), rope_theta_of(config)\n"
            "    steps = torch.arange(0, dim, 2, dtype=torch.int64, device=device).float()\n"
            "    return 1.0 / theta ** (steps / dim), 1.0\n\n"
            "rope_init = ROPE_INIT_FUNCTIONS.get(rope_type, default_rope)",
            releases="5.0.0 and later. Up to 4.57 the entry exists.",
            references=("transformers/modeling_rope_utils.py",),
        ),
        _default_key,
    ),
    Rule(
        RuleText(
            code="SB502",
            name="the library's rotary embedding takes different arguments",
            kind="crash",
            looks_for="TypeError of the constructor of a …RotaryEmbedding",
            cause="Up to 5.15 LlamaRotaryEmbedding takes (config, device); in 5.23 it takes "
            "config only, and a device raises TypeError. In 5.0 to 5.15 `device='cpu'` in "
            "__init__ fails too, because the model is built on the meta device (SB305). Affected: "
            "custom models that pass a device to a rotary embedding of the library.",
            remedy="Pass only the config.",
            example="self.rotary_emb = LlamaRotaryEmbedding(config=config)",
            releases="`device='cpu'` in __init__: NotImplementedError 'Cannot copy out of meta "
            "tensor' from 5.0.0 to 5.15, TypeError in 5.23",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        raised("TypeError", r"RotaryEmbedding\.__init__\(\) (got an unexpected|missing)"),
    ),
    Rule(
        RuleText(
            code="SB503",
            name="the rotary frequencies are not those of the config",
            kind="silent",
            looks_for="inv_freq that differs from its formula (computed in float64 from the "
            "effective config) by more than float32 rounding, if the reference's does not. An "
            "unwritten buffer is SB301 instead. If no buffer holds the frequencies: cos and sin "
            "that differ, in a model whose code has a getattr with a default for a rope field",
            cause="The code reads a rope setting from a place where this release does not "
            "have it. In custom code this is often `getattr(config, 'rope_theta', 10000.0)`: 5.x "
            "has rope_theta in config.rope_parameters, so the default is used. In library code it "
            "is a setting that the release drops (partial factor, original length, settings per "
            "layer type). No exception appears, and every position is rotated by wrong angles. "
            "Affected: such custom models, and the stock models in docs/found.md.",
            remedy="Own code: read config.rope_parameters first, then the flat field, and "
            "raise if both are missing. Library code: write the settings into config.json in the "
            "form that this release reads, and report the defect.",
            example='rope = getattr(config, "rope_parameters", None) or {}\n'
            'theta = rope["rope_theta"] if "rope_theta" in rope else config.rope_theta',
            releases="Own code: 5.0.0 and later. Stock models: docs/found.md.",
            references=("https://github.com/deepspeedai/DeepSpeed/issues/8345",),
        ),
        _wrong_frequencies,
    ),
    Rule(
        RuleText(
            code="SB504",
            name="the rotary frequencies have a different dtype",
            kind="rounding",
            looks_for="inv_freq in a different dtype than in the reference",
            cause="Two causes are known. A model that is cast with `.to(dtype)` casts "
            "inv_freq too; a model that is loaded in that dtype does not. Or the code casts "
            "inv_freq to a dtype from the config: `config.dtype` exists from 4.56 on; before, the "
            "attribute is `config.torch_dtype`. bfloat16 has 8 significant bits: it rounds the "
            "frequencies, and neighbouring positions above 256 become the same number. Affected: "
            "models in bfloat16 or float16 that are cast after loading, and custom code that "
            "casts its frequencies.",
            remedy="Keep the frequencies in float32 in every model. Load the model in the "
            "dtype instead of casting it, and cast cos and sin instead of the frequencies.",
            releases="all",
            references=(
                "transformers/configuration_utils.py, dtype",
                "tests/custom/inv-freq-dtype.repair.diff",
            ),
        ),
        _changed_dtype,
    ),
)

"""SB6xx: rules for attention implementations and their masks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from samebits.compare.phases import DECODED
from samebits.findings.case import Case
from samebits.findings.rule import COMPUTED, RAISED, Rule, Sighting, of_exception
from samebits.records.capture import AttentionCall, Capture, SdpaCall
from samebits.records.comparison import CellResult


def _functions(capture: Capture) -> set[str]:
    """Return how attention was computed in any prompt and layer: ``SDPA``, ``eager``."""
    attention = capture.signals.attention
    calls = attention.calls.values() if attention is not None else ()
    return {"SDPA" if call.sdpa is not None else "eager" for prompt in calls for call in prompt}


def _kernel_change(case: Case) -> str:
    """Return how attention changed between eager and SDPA; '' if it did not or cannot matter."""
    if case.reference is None or case.first() not in ("hidden_states", "logits", "decode"):
        return ""
    candidate, reference = _functions(case.capture), _functions(case.reference)
    if not candidate or not reference or candidate == reference:
        return ""
    return (
        f"{case.reference.cell.stack}: {', '.join(sorted(reference))}; "
        f"{case.capture.cell.stack}: {', '.join(sorted(candidate))}"
    )


def _changed_kernel(case: Case) -> Iterator[Sighting]:
    """Find a changed attention kernel where the ladder classifies the difference as rounding."""
    change = _kernel_change(case) if case.is_rounding else ""
    if change and case.ladder is not None:
        effects = map(_effect_text, _eager_effects(case).values())
        evidence = (change, case.ladder.reason, *effects)
        yield Sighting("attention.kernel", tuple(dict.fromkeys(evidence)))


def _is_beside_scores(case: Case) -> bool:
    """Return True if no score diverges, but an output beside them or the state that a forward leaves."""
    assert case.ladder is not None
    diverged = {step.signal for step in case.ladder.steps if step.kind == "diverged"}
    beside = ("shape", "missing output", "state")
    return case.ladder.rule in beside or diverged == {"outputs"}


def _different_function(case: Case) -> Iterator[Sighting]:
    """Find a changed kernel where the cells diverge and eager attention makes them agree."""
    change = _kernel_change(case) if case.has_diverged and not _is_beside_scores(case) else ""
    eager = _eager_effects(case)
    softcap = _softcap(case)
    if change and case.ladder is not None and not eager and softcap:
        # a quick run does not compute eager attention, and the config says as much
        yield Sighting("attention.kernel", (change, case.ladder.reason, softcap))
    if change and case.ladder is not None and any(eager.values()):
        effects = [
            f"{_effect_text(is_same)} (prompt {prompt})" for prompt, is_same in eager.items()
        ]
        yield Sighting("attention.kernel", (change, case.ladder.reason, *effects))


def _fused_stack(result: CellResult) -> str:
    """Return the stack whose attention is fused: it leaves out what a fused kernel cannot compute."""
    for change in result.changes.get("attention.kernel", ()):
        sides = (isinstance(change.reference, dict), isinstance(change.candidate, dict))
        if sides == (True, False) and result.reference is not None:
            return result.reference.stack
        if sides == (False, True):
            return result.cell.stack
    return ""


def _softcap(case: Case) -> str:
    """Return the soft-cap of the attention scores in the config, which only eager attention has."""
    for name, value in (case.capture.signals.config or {}).items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name.startswith("attn") and "softcap" in name and is_number and value:
            return f"the config has {name} {value}, which a fused attention cannot compute"
    return ""


def _effect_text(is_same: bool) -> str:
    result = "have the same bits" if is_same else "still differ"
    return f"with eager attention on both sides the logits {result}"


def _eager_effects(case: Case) -> dict[str, bool]:
    """Return whether eager attention gives the same logits on both sides.

    Only prompts without padding whose logits differ are included.
    """
    if case.reference is None:
        return {}
    effects: dict[str, bool] = {}
    for prompt, candidate in (case.capture.signals.forward or {}).items():
        reference = (case.reference.signals.forward or {}).get(prompt)
        if (
            reference is None
            or candidate.real_rows
            or candidate.logits is None
            or reference.logits is None
        ):
            continue
        candidate_hash = _eager_hash(case.capture, prompt)
        reference_hash = _eager_hash(case.reference, prompt)
        if candidate_hash and reference_hash and candidate.logits.hash != reference.logits.hash:
            effects[prompt] = candidate_hash == reference_hash
    return effects


def _eager_hash(capture: Capture, prompt: str) -> str | None:
    """Return the hash of a prompt's logits with eager attention, forced or chosen by the model."""
    attention, evidence = capture.signals.attention, capture.signals.evidence
    if attention is not None and attention.resolved == "eager":
        forward = (capture.signals.forward or {}).get(prompt)
        return forward.logits.hash if forward is not None and forward.logits is not None else None
    observed = evidence.prompts.get(prompt) if evidence is not None else None
    logits = observed.eager_logits if observed is not None else None
    return logits.hash if logits is not None else None


_SHAPE = re.compile(r"\[([\d, ]+)\]")


def _heads(layout: str) -> tuple[int, int]:
    """Return the number of heads and positions of a query or key from the probe's description."""
    shape = _SHAPE.search(layout)
    axes = [int(size) for size in shape[1].split(",")] if shape else []
    return (axes[1], axes[2]) if len(axes) == 4 else (0, 0)


def _is_packed(candidate: SdpaCall, reference: SdpaCall) -> bool:
    """Return True if one token's heads in the reference are positions in the candidate."""
    heads, tokens = _heads(candidate.query)
    reference_heads, reference_tokens = _heads(reference.query)
    keys, reference_keys = _heads(candidate.key)[0], _heads(reference.key)[0]
    unpacked = reference_tokens == 1 < tokens and heads * tokens == reference_heads
    return unpacked and keys == heads and reference_keys == reference_heads


def _first_tokens(capture: Capture) -> dict[str, tuple[AttentionCall, ...]]:
    """Return the attention calls of the first decoded token by prompt."""
    return {name: facts.attention for name, facts in (capture.signals.first_token or {}).items()}


def _packed(case: Case) -> Iterator[Sighting]:
    """Find a decoded token with packed heads where decoding is the first signal that differs."""
    if case.reference is None or case.first() != "decode" or case.has_diverged:
        return
    candidate, reference = _first_tokens(case.capture), _first_tokens(case.reference)
    packed = {
        prompt: calls
        for prompt in candidate
        if (calls := _first_packed(candidate[prompt], reference.get(prompt, ()))) is not None
    }
    if packed:
        where = f"decoding, prompt {', '.join(packed)}"
        yield Sighting(where, _packing_lines(case, *next(iter(packed.values()))))


def _first_packed(
    candidate_calls: Iterable[AttentionCall], reference_calls: Iterable[AttentionCall]
) -> tuple[AttentionCall, AttentionCall] | None:
    """Return the first pair of calls of the same module where one side is packed."""
    for candidate, reference in zip(candidate_calls, reference_calls, strict=False):
        if candidate.sdpa is None or reference.sdpa is None or candidate.module != reference.module:
            continue
        if _is_packed(candidate.sdpa, reference.sdpa) or _is_packed(reference.sdpa, candidate.sdpa):
            return candidate, reference
    return None


def _packing_lines(
    case: Case, candidate: AttentionCall, reference: AttentionCall
) -> tuple[str, ...]:
    assert case.reference is not None
    lines = []
    for capture, call in ((case.reference, reference), (case.capture, candidate)):
        assert call.sdpa is not None
        query, key = (
            layout.partition(" strides")[0] for layout in (call.sdpa.query, call.sdpa.key)
        )
        place = f"{call.module}: query {query}, key {key}, mask {call.sdpa.mask or 'none'}"
        lines.append(f"{capture.cell.stack}: {place}")
    return (*lines, case.ladder.reason) if case.is_rounding and case.ladder else tuple(lines)


def _longer_mask(case: Case) -> Iterator[Sighting]:
    match = case.raised(
        "RuntimeError",
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton "
        r"dimension 3|expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) "
        r"at non-singleton dimension 3",
    )
    frame = case.frame(own=False)
    if match is None or frame is None or "attention" not in f"{frame.file} {frame.function}":
        return
    sizes = [int(size) for size in match.groups() if size is not None]
    if sizes[1] - sizes[0] == 1:  # keys first, then the mask
        yield Sighting(case.raised_at(), case.exception_lines())


def _named_by_the_config(case: Case) -> Iterator[Sighting]:
    """Find an attention without its package that no argument of the load asks for."""
    if case.capture.cell.variant.attention != "default":
        return
    if case.raised("ImportError", r"^FlashAttention\d has been toggled on, but it cannot be used"):
        yield Sighting("attn_implementation", case.exception_lines())


RULES = (
    Rule("SB601", _changed_kernel, explains=COMPUTED),
    Rule("SB602", _longer_mask, explains=RAISED),
    of_exception("SB603", "TypeError", r"create_\w*causal_mask\(\)"),
    Rule("SB604", _packed, explains=DECODED),
    Rule("SB605", _different_function, explains=COMPUTED, faulty=_fused_stack),
    of_exception("SB607", "AttributeError", r"has no attribute '_supports_sdpa'"),
    Rule("SB608", _named_by_the_config, explains=RAISED),
)

"""SB6xx: rules for attention implementations and their masks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import AttentionCall, Capture, SdpaCall


def _functions(capture: Capture) -> set[str]:
    """Return how attention was computed in any prompt and layer: ``sdpa``, ``by hand``."""
    attention = capture.signals.attention
    calls = attention.calls.values() if attention is not None else ()
    return {"sdpa" if call.sdpa is not None else "by hand" for prompt in calls for call in prompt}


def _kernel_change(case: Case) -> str:
    """Return how attention changed between by hand and sdpa; '' if it did not or cannot matter."""
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


def _different_function(case: Case) -> Iterator[Sighting]:
    """Find a changed kernel where the cells diverge and eager attention makes them agree."""
    change = _kernel_change(case) if case.has_diverged else ""
    eager = _eager_effects(case)
    if change and case.ladder is not None and any(eager.values()):
        effects = [
            f"{_effect_text(is_same)} (prompt {prompt})" for prompt, is_same in eager.items()
        ]
        yield Sighting("attention.kernel", (change, case.ladder.reason, *effects))


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


RULES = (
    Rule(
        RuleText(
            code="SB601",
            name="attention is computed by a different kernel",
            kind="rounding",
            looks_for="attention by hand, in plain torch operations, in one release and "
            "scaled_dot_product_attention in the other, if hidden states, logits or decoding are "
            "the first to differ and the precision ladder classifies the difference as rounding",
            cause="One of the two releases computes this class's attention with torch's "
            "scaled_dot_product_attention (sdpa), the other in plain torch operations (eager), "
            "because the default attn_implementation of the class changed. Both compute the same "
            "function and round differently. Affected: everyone who compares exact numbers of "
            "this model across the two releases.",
            remedy="None is needed. For the same bits, set `attn_implementation='eager'` in "
            "both releases. This works if the class's eager code is the same in both; the "
            "evidence says whether it is.",
            example='AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="depends on the model",
            references=("transformers/modeling_utils.py, _autoset_attn_implementation",),
        ),
        _changed_kernel,
    ),
    Rule(
        RuleText(
            code="SB602",
            name="a mask one column longer than the keys is no longer cropped",
            kind="crash",
            looks_for="a RuntimeError about sizes that differ by one in dimension 3, raised in an "
            "attention function of the library",
            cause="Up to 4.57 (sdpa) and 5.1 (eager) the attention functions of the library "
            "cut the mask to the number of keys: `attention_mask[:, :, :, :keys]`. Later releases "
            "do not, and a mask that is one column too long raises RuntimeError. Affected: custom "
            "models that make a 4D mask with past + seq + 1 columns.",
            remedy="Cut the mask to the number of keys yourself.",
            example="attention_mask = attention_mask[:, :, :, : key_states.shape[-2]]",
            releases="sdpa: 5.0.0 and later. eager: 5.2.0 and later.",
            references=("transformers/integrations/sdpa_attention.py",),
        ),
        _longer_mask,
    ),
    Rule(
        RuleText(
            code="SB603",
            name="`create_causal_mask` takes different arguments in each release",
            kind="crash",
            looks_for="a TypeError of create_causal_mask or create_sliding_window_causal_mask",
            cause="The keyword input_embeds was renamed to inputs_embeds: 5.2 accepts both, "
            "5.9 only the new name. cache_position was required at first, later optional, and is "
            "now refused. A wrong keyword raises TypeError. Affected: custom models that call "
            "create_causal_mask.",
            remedy="Look at the signature and pass only what it has.",
            example="known = inspect.signature(create_causal_mask).parameters\n"
            'kwargs["inputs_embeds" if "inputs_embeds" in known else "input_embeds"] = hidden\n'
            'if "cache_position" in known:\n    kwargs["cache_position"] = cache_position\n'
            "mask = create_causal_mask(**kwargs)",
            releases="4.48 has no create_causal_mask. 4.53 to 5.6 accept input_embeds. 5.9 and "
            "later refuse cache_position.",
            references=("transformers/masking_utils.py",),
        ),
        raised("TypeError", r"create_\w*causal_mask\(\)"),
    ),
    Rule(
        RuleText(
            code="SB604",
            name="heads of one decoded token are packed into the query",
            kind="rounding",
            looks_for="sdpa calls for the first decoded token: on one side a query with all heads "
            "and one position, with repeated keys; on the other a query with the key-value heads, "
            "where the heads of a group take the place of positions. Decoding has to be the first "
            "signal that differs, and the precision ladder must not classify the difference as "
            "diverged. Further changes of decoding have findings of their own",
            cause="Up to 5.15 the library's sdpa function repeats keys and values for "
            "grouped-query attention. For one token with a mask (a padded batch, a sliding "
            "window) 5.23 instead reshapes the query with pack_gqa: `[rows, heads, 1, dim]` "
            "becomes `[rows, key-value heads, group, dim]`. This is the same function with "
            "different shapes, so the kernel sums in a different order. Affected: everyone who "
            "compares exact numbers of decoding with a grouped-query model across the two "
            "releases.",
            remedy="None is needed. For the older bits use eager attention, which decodes the "
            "same bits in both releases. Own code that calls the library's sdpa function can pass "
            "keys and values that are already repeated, from a module without "
            "num_key_value_groups.",
            example='AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="5.23.0. Not in 5.15.1 and before.",
            references=(
                "transformers/integrations/sdpa_attention.py, pack_gqa",
                "tests/custom/library-sdpa.repair.diff",
            ),
        ),
        _packed,
    ),
    Rule(
        RuleText(
            code="SB605",
            name="eager attention and sdpa compute different functions in this model",
            kind="silent",
            looks_for="attention by hand, in plain torch operations, in one release and "
            "scaled_dot_product_attention in the other, in cells that the precision ladder "
            "classifies as diverged and whose logits are identical once both sides use eager "
            "attention",
            cause="scaled_dot_product_attention has no argument for a soft-cap or for other "
            "changes of the scores. If a release uses it for such a model, it leaves them out "
            "without a warning. 4.48 to 5.2 do so for gemma2 by default; 5.23 refuses sdpa for "
            "it. Affected: users of gemma2, and of custom models with changed attention scores, "
            "who do not set attn_implementation.",
            remedy="Set `attn_implementation='eager'` in every release. Eager attention "
            "computes what the config says.",
            example='AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="gemma2 with sdpa: 4.48 to 5.2 (measured here)",
            references=(
                "docs/found.md",
                "https://github.com/huggingface/transformers/pull/32865",
            ),
        ),
        _different_function,
    ),
)

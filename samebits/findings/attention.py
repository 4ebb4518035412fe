"""SB6xx: attention implementations and the masks they are given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Seen, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import AttentionCall, Capture, SdpaCall


def _functions(capture: Capture) -> set[str]:
    """Return how attention was computed, over all prompts and layers: ``sdpa`` or ``by hand``."""
    attention = capture.signals.attention
    calls = attention.calls.values() if attention is not None else ()
    return {"sdpa" if call.sdpa is not None else "by hand" for prompt in calls for call in prompt}


def _other_kernel(case: Case) -> str:
    """Return how attention went from by hand to sdpa, or back, where that can move numbers."""
    if case.reference is None or case.first() not in ("hidden_states", "logits", "decode"):
        return ""
    mine, theirs = _functions(case.capture), _functions(case.reference)
    if not mine or not theirs or mine == theirs:
        return ""
    return (
        f"{case.reference.cell.stack}: {', '.join(sorted(theirs))}; "
        f"{case.capture.cell.stack}: {', '.join(sorted(mine))}"
    )


def _implementation(case: Case) -> Iterator[Seen]:
    """Speak of another kernel where the ladder calls the difference rounding."""
    change = _other_kernel(case) if case.is_rounding else ""
    if change and case.ladder is not None:
        evidence = (change, case.ladder.reason, *_eager(case).values())
        yield Seen("attention.kernel", tuple(dict.fromkeys(evidence)))


def _another_function(case: Case) -> Iterator[Seen]:
    """Speak of another kernel where the cells diverge and eager attention makes them agree."""
    change = _other_kernel(case) if case.has_diverged else ""
    eager = _eager(case)
    if change and case.ladder is not None and _SAME in eager.values():
        told = [f"{said} (prompt {prompt})" for prompt, said in eager.items()]
        yield Seen("attention.kernel", (change, case.ladder.reason, *told))


_SAME = "with attention forced to eager on both sides the logits hold the same bits"
_OTHER = "with attention forced to eager on both sides the logits still differ"


def _eager(case: Case) -> dict[str, str]:
    """Return what forcing eager attention does, by prompt: those that differ and are not padded."""
    if case.reference is None:
        return {}
    found = {}
    for prompt, facts in (case.capture.signals.forward or {}).items():
        other = (case.reference.signals.forward or {}).get(prompt)
        if other is None or facts.real_rows or facts.logits is None or other.logits is None:
            continue
        one, two = _eager_hash(case.capture, prompt), _eager_hash(case.reference, prompt)
        if one and two and facts.logits.hash != other.logits.hash:
            found[prompt] = _SAME if one == two else _OTHER
    return found


def _eager_hash(capture: Capture, prompt: str) -> str | None:
    """Return the content of a prompt's logits with eager attention, forced or as it is anyway."""
    attention, evidence = capture.signals.attention, capture.signals.evidence
    if attention is not None and attention.resolved == "eager":
        forward = (capture.signals.forward or {}).get(prompt)
        return forward.logits.hash if forward is not None and forward.logits is not None else None
    seen = evidence.prompts.get(prompt) if evidence is not None else None
    return seen.eager_logits.hash if seen is not None and seen.eager_logits is not None else None


_SHAPE = re.compile(r"\[([\d, ]+)\]")


def _heads(layout: str) -> tuple[int, int]:
    """Return the heads and the positions of a query or key, from what the probe says of it."""
    shape = _SHAPE.search(layout)
    axes = [int(size) for size in shape[1].split(",")] if shape else []
    return (axes[1], axes[2]) if len(axes) == 4 else (0, 0)


def _is_packed(mine: SdpaCall, theirs: SdpaCall) -> bool:
    """Return True if the heads that are one token's on one side are positions on the other."""
    (heads, tokens), (their_heads, their_tokens) = _heads(mine.query), _heads(theirs.query)
    keys, their_keys = _heads(mine.key)[0], _heads(theirs.key)[0]
    unpacked = their_tokens == 1 < tokens and heads * tokens == their_heads
    return unpacked and keys == heads and their_keys == their_heads


def _first_tokens(capture: Capture) -> dict[str, tuple[AttentionCall, ...]]:
    """Return the attention calls of the first token behind the cache, by prompt."""
    return {name: facts.attention for name, facts in (capture.signals.first_token or {}).items()}


def _packed(case: Case) -> Iterator[Seen]:
    """Speak of a decoded token whose heads are packed, where decoding is the first to differ."""
    if case.reference is None or case.first() != "decode" or case.has_diverged:
        return
    mine, theirs = _first_tokens(case.capture), _first_tokens(case.reference)
    found = {
        prompt: calls
        for prompt in mine
        if (calls := _first_packed(mine[prompt], theirs.get(prompt, ()))) is not None
    }
    if found:
        where = f"decoding, prompt {', '.join(found)}"
        yield Seen(where, _packing(case, *next(iter(found.values()))))


def _first_packed(
    mine: Iterable[AttentionCall], theirs: Iterable[AttentionCall]
) -> tuple[AttentionCall, AttentionCall] | None:
    """Return the first pair of calls of one module that is packed on one side."""
    for one, other in zip(mine, theirs, strict=False):
        if one.sdpa is None or other.sdpa is None or one.module != other.module:
            continue
        if _is_packed(one.sdpa, other.sdpa) or _is_packed(other.sdpa, one.sdpa):
            return one, other
    return None


def _packing(case: Case, one: AttentionCall, other: AttentionCall) -> tuple[str, ...]:
    assert case.reference is not None
    lines = []
    for capture, call in ((case.reference, other), (case.capture, one)):
        assert call.sdpa is not None
        query, key = (
            layout.partition(" strides")[0] for layout in (call.sdpa.query, call.sdpa.key)
        )
        place = f"{call.module}: query {query}, key {key}, mask {call.sdpa.mask or 'none'}"
        lines.append(f"{capture.cell.stack}: {place}")
    return (*lines, case.ladder.reason) if case.is_rounding and case.ladder else tuple(lines)


def _longer_mask(case: Case) -> Iterator[Seen]:
    found = case.raised(
        "RuntimeError",
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton "
        r"dimension 3|expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) "
        r"at non-singleton dimension 3",
    )
    frame = case.frame(own=False)
    if found is None or frame is None or "attention" not in f"{frame.file} {frame.function}":
        return
    sizes = [int(size) for size in found.groups() if size is not None]
    if sizes[1] - sizes[0] == 1:  # keys first, then the mask
        yield Seen(case.raised_at(), case.told())


RULES = (
    Rule(
        RuleText(
            code="SB601",
            name="attention is computed by another kernel",
            kind="rounding",
            looks_for="attention by hand in one release and through scaled_dot_product_attention in "
            "the other, where hidden states, logits or decoding are the first to differ and the "
            "precision ladder calls the difference rounding",
            cause="The class learned sdpa (or gave it up) between the two releases, and 'default' "
            "resolves to it.",
            remedy="None is needed. Asking for the same attn_implementation in both releases gives "
            "the same bits where the class's eager code is the same in both; the evidence says "
            "whether it did.",
            example='AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="differs by model",
            references=("transformers/modeling_utils.py, _autoset_attn_implementation",),
        ),
        _implementation,
    ),
    Rule(
        RuleText(
            code="SB602",
            name="a mask one column longer than the keys is no longer cropped",
            kind="crash",
            looks_for="sizes that differ by one in dimension 3, raised in a library attention "
            "function",
            cause="The library's attention functions cropped attention_mask[:, :, :, :keys] through "
            "4.57 (sdpa) and 5.1 (eager). Code that builds its mask for past + seq + 1 columns "
            "relied on it.",
            remedy="Crop the mask to the keys yourself.",
            example="attention_mask = attention_mask[:, :, :, : key_states.shape[-2]]",
            releases="sdpa: 5.0.0 and later; eager: 5.2.0 and later",
            references=("transformers/integrations/sdpa_attention.py",),
        ),
        _longer_mask,
    ),
    Rule(
        RuleText(
            code="SB603",
            name="create_causal_mask takes other arguments in every release",
            kind="crash",
            looks_for="TypeError of create_causal_mask or create_sliding_window_causal_mask",
            cause="input_embeds became inputs_embeds (5.2 takes both, 5.9 only the new name), and "
            "cache_position was required, then optional, then refused.",
            remedy="Pass only what the signature has.",
            example="known = inspect.signature(create_causal_mask).parameters\n"
            'kwargs["inputs_embeds" if "inputs_embeds" in known else "input_embeds"] = hidden\n'
            'if "cache_position" in known:\n    kwargs["cache_position"] = cache_position\n'
            "mask = create_causal_mask(**kwargs)",
            releases="4.48 has none; 4.53 to 5.6 input_embeds; 5.9 and later refuse cache_position",
            references=("transformers/masking_utils.py",),
        ),
        raised("TypeError", r"create_\w*causal_mask\(\)"),
    ),
    Rule(
        RuleText(
            code="SB604",
            name="one decoded token's heads are packed into the query",
            kind="rounding",
            looks_for="sdpa calls of the first token decoded through the cache: on one side a query of "
            "all heads and one position beside repeated keys, on the other a query of the key-value "
            "heads with the group's heads as positions, where decoding is the first to differ and "
            "the precision ladder does not call it diverged. What else changed in decoding stands in "
            "findings of its own",
            cause="5.23's sdpa wrapper no longer repeats keys and values for a single masked token "
            "(a padded batch, a sliding window): pack_gqa turns [rows, heads, 1, dim] into [rows, "
            "key-value heads, group, dim]. The same maths, other shapes for the kernel, other sums.",
            remedy="None is needed. Where the older bits matter, eager attention decodes alike in "
            "both releases; own code that calls the library's sdpa wrapper can hand it keys and "
            "values that are repeated already, from a module without num_key_value_groups.",
            example='AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="5.23.0; not in 5.15.1 and before",
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
            name="attention by hand and sdpa are not the same function in this model",
            kind="silent",
            looks_for="attention by hand in one release and through scaled_dot_product_attention in "
            "the other, cells that the precision ladder calls diverged, and logits of the same bits "
            "once attention is forced to eager on both sides",
            cause="scaled_dot_product_attention takes no soft-cap and no score of a model's own: "
            "where a class is sent through it all the same, they are dropped. 4.48 to 5.2 run gemma2 "
            "so by default, 5.23 refuses.",
            remedy="Ask for eager attention in every release: it is the side that computes what the "
            "config says.",
            example='AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="gemma2 with sdpa: 4.48 to 5.2, as measured here",
            references=(
                "docs/found.md",
                "https://github.com/huggingface/transformers/pull/32865",
            ),
        ),
        _another_function,
    ),
)

"""SB6xx: attention implementations and the masks they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.finding import RuleText
from samebits.findings.rule import Rule, Seen, raised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.capture import Capture
    from samebits.findings.case import Case


def _functions(capture: Capture) -> set[str]:
    """Return how attention was computed, over all prompts and layers: ``sdpa`` or ``by hand``."""
    attention = capture.signals.attention
    calls = attention.calls.values() if attention is not None else ()
    return {"sdpa" if call.sdpa is not None else "by hand" for prompt in calls for call in prompt}


def _implementation(case: Case) -> Iterator[Seen]:
    """Speak where attention went from by hand to sdpa, or back, and forced eager restores bits."""
    if case.reference is None or case.first() not in ("hidden_states", "logits", "decode"):
        return
    mine, theirs = _functions(case.capture), _functions(case.reference)
    if not mine or not theirs or mine == theirs:
        return
    yield Seen(
        "attention.kernel",
        (
            (
                f"{case.reference.cell.stack}: {', '.join(sorted(theirs))}; "
                f"{case.capture.cell.stack}: {', '.join(sorted(mine))}"
            ),
            *_eager(case),
        ),
    )


def _eager(case: Case) -> Iterator[str]:
    mine = case.capture.signals.evidence
    theirs = case.reference.signals.evidence if case.reference is not None else None
    if mine is None or theirs is None or not mine.eager_logits or not theirs.eager_logits:
        return
    if mine.eager_logits.hash == theirs.eager_logits.hash:
        yield "with attention forced to eager on both sides the logits hold the same bits"
    else:
        yield "with attention forced to eager on both sides the logits still differ"


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
            "the other, where hidden states, logits or decoding are the first to differ",
            cause="The class learned sdpa (or gave it up) between the two releases, and 'default' "
            "resolves to it.",
            remedy="Ask for the same attn_implementation in both releases. Soft-caps and per-layer "
            "scales are dropped by some releases' sdpa paths: there it is no rounding "
            "(docs/found.md, gemma2 and gpt2).",
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
)

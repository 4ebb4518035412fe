"""SB9xx: rules for common uses around a model, where the release matters and not the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.outcome import differs, has_other_shape
from samebits.findings.case import seen_with
from samebits.findings.rule import Rule, Sighting
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.usage import UsageSignal

    Check = Callable[[Case], Iterator[Sighting]]

_WITHOUT_MAPS = ("None", "an empty tuple", "None for each layer")
_WITH_MAPS = ("tensors", "tensors and None")
_PULLS = "https://github.com/huggingface/transformers/pull"


def _no_attentions(case: Case) -> Iterator[Sighting]:
    """Find attention maps that were requested and not returned, though eager attention has them."""
    observed = case.usage.attentions
    if observed is None or observed.given not in _WITHOUT_MAPS or observed.eager not in _WITH_MAPS:
        return
    evidence = [
        f"with {observed.implementation} the attentions of the output are {observed.given}",
        f"with eager attention the same model returns {observed.eager}",
    ]
    if observed.set_in_config:
        evidence.append(f"config.output_attentions = True raises {observed.set_in_config}")
    yield Sighting("output_attentions=True", tuple(evidence))


def _other_output(case: Case) -> Iterator[Sighting]:
    """Find outputs that hold another quantity where layers and logits agree but for rounding."""
    if case.ladder is None or not case.has_diverged:
        return
    steps = [step for step in case.ladder.steps if step.kind in ("diverged", "undecided")]
    if any(step.signal != "outputs" for step in steps):
        return
    if case.first() not in ("outputs", "hidden_states", "logits"):
        return  # other inputs, weights or tables explain it
    changed = {str(step.subject): step for step in steps if step.kind == "diverged"}
    evidence: dict[str, str] = {}
    for item in (
        i for s in case.signals if s.signal == "outputs" for i in filter(differs, s.items)
    ):
        tensor = item.subject.tensor
        if has_other_shape(item):
            evidence.setdefault(tensor, f"{item.name}: {item.note}")
        elif (step := changed.get(str(item.subject))) is not None:
            evidence.setdefault(tensor, f"{item.name}: {step.own:.2g} → float64 {step.float64:.2g}")
    if evidence:
        yield Sighting(", ".join(evidence), tuple(evidence.values()))


def _other_logits(case: Case) -> Iterator[Sighting]:
    observed = case.usage.attentions
    if observed is not None and observed.logits_changed:
        yield Sighting(
            "output_attentions=True",
            (
                f"with {observed.implementation} the logits differ from those without the argument",
                "the call returned maps, which scaled_dot_product_attention cannot do",
            ),
        )


def _packed_sequences(case: Case) -> Iterator[Sighting]:
    packed, dtype = case.usage.packed, case.capture.cell.variant.dtype
    if packed is None or not any(packed.sees(way, dtype) for way in packed.ways):
        return
    yield Sighting(
        "packed position_ids",
        tuple(
            f"{way.way}: the second sequence {'uses' if sees else 'does not use'} the first"
            for way in packed.ways
            if (sees := packed.sees(way, dtype)) is not None
        ),
    )


def _short_key_tensors(case: Case) -> Iterator[Sighting]:
    cache = case.usage.cache
    if cache is None:
        return
    short = [layer for layer in cache.layers if layer.keys < cache.fed]
    if short:
        yield Sighting(
            "key tensors of the cache",
            (
                *(
                    f"after {cache.fed} tokens {layer.n} of the layers ({layer.kind}) hold keys of "
                    f"{layer.keys} positions"
                    for layer in short
                ),
                f"get_seq_length() returns {cache.seq_length}",
            ),
        )


def _ignored_position(case: Case) -> Iterator[Sighting]:
    observed = case.usage.cache_position
    if observed is not None and not observed.named and observed.wrong == "the same logits":
        yield Sighting(
            "forward(cache_position=…)",
            (
                "forward's signature does not name it, and no exception is raised",
                "a cache_position that is wrong by three gives the same bits",
            ),
        )


def _frozen_positions(case: Case) -> Iterator[Sighting]:
    observed = case.usage.position_ids
    if observed is None or observed.same_logits is not False or len(observed.fed) < 2:
        return
    if set(observed.fed) == {observed.prompt - 1}:
        n_tokens, positions = observed.prompt, ", ".join(map(str, observed.fed))
        yield Sighting(
            "generate(position_ids=…)",
            (
                f"after a prompt of {n_tokens} tokens the steps were fed the positions {positions}",
                "the logits differ from those of generate() without the argument",
            ),
        )


def _min_new_tokens(case: Case) -> Iterator[Sighting]:
    observed = case.usage.assisted
    if (
        observed is not None
        and "MinLengthLogitsProcessor" in observed.min_new_tokens
        and not observed.plain
    ):
        yield Sighting(
            "generate(assistant_model=…, min_new_tokens=…)",
            (observed.min_new_tokens, "without min_new_tokens it works"),
        )


def _hub_strategies(case: Case) -> Iterator[Sighting]:
    refused = {
        name: error
        for name, error in (case.usage.strategies or {}).items()
        if "trust_remote_code=True" in error
    }
    if refused:
        yield Sighting(
            " and ".join(f"generate({name}=…)" for name in refused), tuple(refused.values())
        )


def _ignored_safe_serialization(case: Case) -> Iterator[Sighting]:
    saved = case.usage.saved
    if saved is not None and any(name.endswith(".safetensors") for name in saved.files):
        yield Sighting(
            "save_pretrained(safe_serialization=False)", (f"it wrote {', '.join(saved.files)}",)
        )


def _changed_saving(case: Case) -> Iterator[Sighting]:
    """Find differences in what a save writes; a refused save does not count for the keys."""
    reference = case.reference.signals.usage if case.reference is not None else None
    saves = (case.usage.saved, reference.saved if reference is not None else None)
    both_wrote = all(saved is not None and not saved.refused for saved in saves)
    yield from _changed_fact(
        case,
        "save_pretrained",
        lambda usage: (
            usage.saved and (both_wrote and usage.saved.dtype_keys, usage.saved.max_shard_size)
        ),
        lambda usage: _save_description(usage, both_wrote=both_wrote),
    )


def _save_description(usage: UsageSignal, *, both_wrote: bool) -> str:
    assert usage.saved is not None
    shards = f"max_shard_size is {usage.saved.max_shard_size}"
    names = " and ".join(usage.saved.dtype_keys) or "no key"
    return f"config.json has the dtype under {names}; {shards}" if both_wrote else shards


def _changed_use_reentrant(case: Case) -> Iterator[Sighting]:
    yield from _changed_fact(
        case,
        "gradient_checkpointing_enable()",
        lambda usage: usage.checkpointing and usage.checkpointing.use_reentrant,
        lambda usage: f"use_reentrant={usage.checkpointing and usage.checkpointing.use_reentrant}",
    )


def _changed_fact(
    case: Case,
    where: str,
    fact: Callable[[UsageSignal], object],
    describe: Callable[[UsageSignal], str],
) -> Iterator[Sighting]:
    """Find a fact that differs from the reference's; None on either side is not compared."""
    if case.reference is None or case.reference.signals.usage is None:
        return
    candidate, reference = case.usage, case.reference.signals.usage
    if None in (fact(candidate), fact(reference)) or fact(candidate) == fact(reference):
        return
    candidate_stack, reference_stack = case.capture.cell.stack, case.reference.cell.stack
    yield Sighting(
        where,
        (f"{reference_stack}: {describe(reference)}", f"{candidate_stack}: {describe(candidate)}"),
    )


def _with_the_asked(check: Check) -> Check:
    """Return a check whose evidence says so where a made model answered for a large one."""

    def checked(case: Case) -> Iterator[Sighting]:
        lines = seen_with(case.usage.asked_of)
        for sighting in check(case):
            yield sighting._replace(evidence=(*sighting.evidence, *lines))

    return checked


_RULES = (
    Rule(
        RuleText(
            code="SB901",
            name="`output_attentions=True` returns no attention maps",
            kind="api",
            scope="release",
            looks_for="a forward with output_attentions=True whose attentions are None or empty, "
            "if the same model returns tensors with eager attention",
            cause="scaled_dot_product_attention (sdpa), the usual default, cannot return "
            "attention maps. 4.48 switches to eager attention for such a call. Later releases "
            "warn once and return None for each layer, None or an empty tuple. Affected: code "
            "that reads outputs.attentions without setting attn_implementation.",
            remedy="Load the model with `attn_implementation='eager'` when you need maps. Use "
            "another copy for the logits, because eager attention rounds differently. Setting "
            "config.output_attentions instead is refused.",
            example='model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="4.53: (None, …). 4.57 to 5.1: None, in some classes (None, …). 5.2 and "
            "later: ().",
            references=(
                "transformers/integrations/sdpa_attention.py",
                "transformers/utils/output_capturing.py",
            ),
        ),
        _no_attentions,
    ),
    Rule(
        RuleText(
            code="SB902",
            name="requesting attention maps changes the logits",
            kind="rounding",
            scope="release",
            looks_for="a forward with output_attentions=True that returns maps, and whose logits "
            "differ from those without it",
            cause="scaled_dot_product_attention cannot return attention maps, so the class "
            "computes attention in plain torch operations for this call. That is the same "
            "function, rounded differently. Affected: everyone who compares exact logits with and "
            "without output_attentions.",
            remedy="Compare without output_attentions, or with `attn_implementation='eager'` "
            "on both sides.",
            releases="4.48. Later releases return no maps instead (SB901).",
            references=("transformers/models/llama/modeling_llama.py of 4.48",),
        ),
        _other_logits,
    ),
    Rule(
        RuleText(
            code="SB903",
            name="packed sequences are not kept apart",
            kind="silent",
            scope="release",
            looks_for="two sequences in one row, with position_ids that restart, where a change "
            "of the first changes the logits of the second by more than rounding",
            cause="From 4.53 on position_ids that restart give each sequence its own block of "
            "the mask, but only without an attention_mask and without a cache. A mask of ones or "
            "use_cache=True (the default) switches this off. Before 4.53 there is no such mask. "
            "Convolutions and recurrent states run across the border in every release. Affected: "
            "training or scoring with packed sequences.",
            remedy="From 4.53 on pass no attention_mask and use_cache=False. Otherwise put one "
            "sequence into each row.",
            example="model(ids, position_ids=restarting, attention_mask=None, use_cache=False)",
            releases="4.48: always. 4.53 to 5.23: with a mask or a cache.",
            references=(f"{_PULLS}/39194", f"{_PULLS}/46634", "transformers/masking_utils.py"),
        ),
        _packed_sequences,
    ),
    Rule(
        RuleText(
            code="SB904",
            name="the cache holds fewer positions than were fed",
            kind="api",
            scope="release",
            looks_for="key tensors of the cache that are shorter than the number of tokens fed, "
            "after a forward longer than the sliding window",
            cause="By 4.57 a sliding-window layer of DynamicCache keeps only the last window "
            "- 1 positions. The HybridCache of 4.48 keeps the window. The shape of the keys is "
            "therefore not the number of tokens. Affected: code that takes the past length from "
            "the shape of cached keys.",
            remedy="Take the past length from get_seq_length(), not from the shape of the "
            "keys. Do not crop such a cache to a length before the positions that it dropped.",
            example="past = cache.get_seq_length()  # not cache.layers[0].keys.shape[-2]",
            releases="4.57 and later. gemma2 also in 4.48, where get_seq_length() returns the "
            "window too.",
            references=("transformers/cache_utils.py, DynamicSlidingWindowLayer",),
        ),
        _short_key_tensors,
    ),
    Rule(
        RuleText(
            code="SB905",
            name="cache_position is accepted and ignored",
            kind="api",
            scope="release",
            looks_for="a forward whose signature does not name cache_position, that accepts it, "
            "and that gives the same bits for wrong positions",
            cause="cache_position was removed from the signatures between 5.2 and 5.6. An "
            "argument of this name disappears in `**kwargs` without an exception. Affected: code "
            "that passes cache_position to place tokens in the sequence or in a static cache.",
            remedy="Pass position_ids, and let the cache count its tokens: get_seq_length(). "
            "Code that writes to a static cache has to compute the positions from it.",
            example="start = cache.get_seq_length()\n"
            "position_ids = torch.arange(start, start + input_ids.shape[1])[None]",
            releases="A parameter up to 5.2, gone by 5.6. Classes that never had it ignore it in "
            "every release.",
            references=(f"{_PULLS}/44181", f"{_PULLS}/44759"),
        ),
        _ignored_position,
    ),
    Rule(
        RuleText(
            code="SB906",
            name="`generate()` does not advance `position_ids`",
            kind="silent",
            scope="release",
            looks_for="a generate() with position_ids that feeds the last position of the prompt "
            "at every step, and whose logits differ from those without the argument",
            cause="Up to 5.1 generate() keeps the position_ids that it gets and passes their "
            "last entry at every step, so every new token has the position of the last prompt "
            "token. 5.2 appends the next position. Affected: callers of generate() that pass "
            "position_ids.",
            remedy="Pass attention_mask instead of position_ids, and generate() counts the "
            "positions. Or decode step by step with forward.",
            releases="Wrong in 4.48 to 5.1. Right from 5.2 on.",
            references=(
                "https://github.com/huggingface/transformers/issues/29149",
                f"{_PULLS}/43734",
            ),
        ),
        _frozen_positions,
    ),
    Rule(
        RuleText(
            code="SB907",
            name="assisted generation refuses min_new_tokens",
            kind="crash",
            scope="release",
            looks_for="ValueError: Passing `MinLengthLogitsProcessor` …, if assisted generation "
            "works without min_new_tokens",
            cause="generate() turns min_new_tokens into a MinLengthLogitsProcessor, and its "
            "candidate generator then refuses this processor with a ValueError. By 5.6 the "
            "candidate generator leaves it out. Affected: calls of generate() with "
            "assistant_model and min_new_tokens.",
            remedy="Do not combine min_new_tokens with an assistant: leave out one of the two.",
            releases="Fails in 4.57 to 5.2. Works in 4.48 and 4.53, and in 5.6 and later.",
            references=("transformers/generation/candidate_generator.py",),
        ),
        _min_new_tokens,
    ),
    Rule(
        RuleText(
            code="SB908",
            name="a generation strategy now needs code from the hub",
            kind="crash",
            scope="release",
            looks_for="a ValueError that asks for trust_remote_code=True, for penalty_alpha or "
            "num_beam_groups",
            cause="Contrastive search and group beam search were moved from the library to "
            "repositories of transformers-community on the hub. Their arguments now download that "
            "code, and raise ValueError without trust_remote_code=True. Affected: calls of "
            "generate() with penalty_alpha or num_beam_groups.",
            remedy="Use num_beams or sampling. Or pass trust_remote_code=True, which downloads "
            "and runs the current code from the hub.",
            releases="4.48 and 4.53 have both strategies. 4.57 and later need the hub.",
            references=(f"{_PULLS}/40428", "transformers/generation/utils.py"),
        ),
        _hub_strategies,
    ),
    Rule(
        RuleText(
            code="SB909",
            name="safe_serialization=False is ignored",
            kind="api",
            scope="release",
            looks_for="save_pretrained(safe_serialization=False) that writes safetensors",
            cause="5.0 removed the parameter. The argument disappears in `**kwargs`, and "
            "save_pretrained writes safetensors. Affected: code that needs pytorch_model.bin.",
            remedy="If you need a pickle, write it yourself.",
            example='torch.save(model.state_dict(), folder / "pytorch_model.bin")',
            releases="5.0.0 and later",
            references=(f"{_PULLS}/42734", f"{_PULLS}/42904"),
        ),
        _ignored_safe_serialization,
    ),
    Rule(
        RuleText(
            code="SB910",
            name="`save_pretrained` uses another key for the dtype or other file sizes",
            kind="api",
            scope="release",
            looks_for="a different key for the dtype in config.json, or a different default of "
            "max_shard_size, than in the reference",
            cause="By 4.57 the key torch_dtype in config.json is called dtype; programs that "
            "look for the old key do not find it. In 5.0 the default of max_shard_size changed "
            "from 5GB to 50GB. Affected: tools that read config.json, and uploads or file systems "
            "with a limit on file size.",
            remedy="Pass the dtype in every load, and max_shard_size in every save.",
            example='model.save_pretrained(folder, max_shard_size="5GB")',
            releases="dtype: 4.57 and later. 50GB: 5.0.0 and later.",
            references=("transformers/configuration_utils.py, to_dict", f"{_PULLS}/42904"),
        ),
        _changed_saving,
    ),
    Rule(
        RuleText(
            code="SB911",
            name="gradient checkpointing has a different default",
            kind="api",
            scope="release",
            looks_for="gradient_checkpointing_enable() without arguments that sets a different "
            "use_reentrant than in the reference",
            cause="5.0 changed the default from use_reentrant=True to False. The two differ "
            "in which hooks run, in random states, and in the handling of inputs without "
            "gradients. Affected: training with gradient checkpointing that does not set "
            "use_reentrant.",
            remedy="Set use_reentrant yourself.",
            example='model.gradient_checkpointing_enable({"use_reentrant": False})',
            releases="True up to 4.57. False from 5.0.0 on.",
            references=("transformers/modeling_utils.py, gradient_checkpointing_enable",),
        ),
        _changed_use_reentrant,
    ),
)
_OUTPUT_RULE = Rule(
    RuleText(
        code="SB912",
        name="an output has the same name and holds something else",
        kind="silent",
        looks_for="a tensor that forward returns beside the logits, under the same name in "
        "both releases, in another shape or with a difference that float64 does not remove, "
        "while no layer and no logit differs by more than rounding",
        cause="The model computes the same, and puts another intermediate result where the "
        "former one was. In 5.0 `get_text_features()` and `get_image_features()` of CLIP and "
        "its relatives write their projection over `pooler_output`, and forward returns these "
        "objects as `text_model_output` and `vision_model_output`: pooled features there are "
        "projected ones since.",
        remedy="Take the tensor from where it is the same in both releases. For CLIP call the "
        "inner models.",
        example="pooled = model.text_model(**text_inputs).pooler_output\n"
        "pooled = model.vision_model(**image_inputs).pooler_output",
        releases="CLIP and its relatives: 5.0.0 and later. Custom models: any release.",
        references=("transformers/models/clip/modeling_clip.py, get_text_features",),
    ),
    _other_output,
)
RULES = (
    *(rule._replace(check=_with_the_asked(rule.check)) for rule in _RULES),
    _OUTPUT_RULE,  # no made model answers for outputs
)

"""SB9xx: rules for common uses around a model, where the release matters and not the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.usage import UsageSignal

_WITHOUT_MAPS = ("None", "an empty tuple", "None for each layer")
_WITH_MAPS = ("tensors", "tensors and None")
_PULLS = "https://github.com/huggingface/transformers/pull"


def _no_attentions(case: Case) -> Iterator[Sighting]:
    """Find attention maps that were requested and not returned, though eager attention has them."""
    observed = case.usage.attentions
    if observed is None or observed.given not in _WITHOUT_MAPS or observed.eager not in _WITH_MAPS:
        return
    evidence = [
        f"under {observed.implementation} the attentions of the output are {observed.given}",
        f"forced to eager, the same model gives {observed.eager}",
    ]
    if observed.set_in_config:
        evidence.append(f"config.output_attentions = True raises {observed.set_in_config}")
    yield Sighting("output_attentions=True", tuple(evidence))


def _other_logits(case: Case) -> Iterator[Sighting]:
    observed = case.usage.attentions
    if observed is not None and observed.logits_changed:
        yield Sighting(
            "output_attentions=True",
            (
                f"under {observed.implementation} the logits have other bits than without it",
                "the maps are tensors, which scaled_dot_product_attention does not return",
            ),
        )


def _packed_sequences(case: Case) -> Iterator[Sighting]:
    packed, dtype = case.usage.packed, case.capture.cell.variant.dtype
    if packed is None or not any(packed.sees(way, dtype) for way in packed.ways):
        return
    yield Sighting(
        "packed position_ids",
        tuple(
            f"{way.way}: the second sequence {'sees' if sees else 'does not see'} the first"
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
                f"get_seq_length() says {cache.seq_length}",
            ),
        )


def _ignored_position(case: Case) -> Iterator[Sighting]:
    observed = case.usage.cache_position
    if observed is not None and not observed.named and observed.wrong == "the same logits":
        yield Sighting(
            "forward(cache_position=…)",
            (
                "forward's signature does not name it, and nothing is raised",
                "positions that are wrong by three give the same bits",
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
                f"a prompt of {n_tokens} tokens: its steps were fed the positions {positions}",
                "the logits are not those of generate() without the argument",
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
    return f"config.json says the dtype under {names}; {shards}" if both_wrote else shards


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


RULES = (
    Rule(
        RuleText(
            code="SB901",
            name="output_attentions=True gives no attention maps",
            kind="api",
            scope="release",
            looks_for="a forward with output_attentions=True whose attentions are None or empty, "
            "where the same model forced to eager gives tensors",
            cause="scaled_dot_product_attention returns no maps. 4.48 ran eager instead; later "
            "releases warn once and return nothing: None per layer, None, or ().",
            remedy="Load with attn_implementation='eager' for maps, and for them alone: its logits "
            "have other bits. Setting config.output_attentions is refused, too.",
            example='model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager")',
            releases="4.53: (None, …); 4.57 to 5.1: None, in some classes (None, …); 5.2 and later: ()",
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
            name="asking for attention maps changes the logits",
            kind="rounding",
            scope="release",
            looks_for="a forward with output_attentions=True that gives tensors, and logits with "
            "other bits than without it",
            cause="The class computes attention by hand for this call, because "
            "scaled_dot_product_attention has no maps to give.",
            remedy="Compare bits without the flag, or with attn_implementation='eager' on both sides.",
            releases="4.48; later releases give no maps instead (SB901)",
            references=("transformers/models/llama/modeling_llama.py of 4.48",),
        ),
        _other_logits,
    ),
    Rule(
        RuleText(
            code="SB903",
            name="packed sequences see each other",
            kind="silent",
            scope="release",
            looks_for="two sequences in one row with position_ids that start again, where replacing "
            "the first changes the logits of the second by more than rounding does",
            cause="Restarting positions become a block-diagonal mask only if attention_mask is None "
            "and there is no cache, which use_cache=True makes; a mask of ones switches it off. "
            "Before 4.53 they never do. Convolutions and recurrent states run on in any release.",
            remedy="Feed no attention_mask and use_cache=False, in a release from 4.53 on; or one "
            "sequence a row.",
            example="model(ids, position_ids=restarting, attention_mask=None, use_cache=False)",
            releases="4.48: always; 4.53 to 5.23: with a mask or a cache",
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
            looks_for="a forward past the sliding window after which key tensors of the cache are "
            "shorter than the tokens fed",
            cause="By 4.57 a sliding layer of DynamicCache keeps the last window - 1 positions; "
            "4.48's HybridCache had room for the window alone.",
            remedy="Take the past length from get_seq_length(), never from the shape of the keys. A "
            "cache that dropped positions cannot be cropped to before them.",
            example="past = cache.get_seq_length()  # not cache.layers[0].keys.shape[-2]",
            releases="4.57 and later; gemma2 in 4.48, where get_seq_length() says the window, too",
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
            looks_for="a forward that does not name cache_position, takes it, and gives the same bits "
            "for wrong positions",
            cause="cache_position left the signatures between 5.2 and 5.6; what is passed disappears "
            "in **kwargs.",
            remedy="Say where tokens stand with position_ids, and let the cache count: what it holds "
            "is get_seq_length(). Code that writes a static cache by cache_position must derive it.",
            example="start = cache.get_seq_length()\n"
            "position_ids = torch.arange(start, start + input_ids.shape[1])[None]",
            releases="a parameter through 5.2, gone by 5.6; classes that never had it ignore it in "
            "every release",
            references=(f"{_PULLS}/44181", f"{_PULLS}/44759"),
        ),
        _ignored_position,
    ),
    Rule(
        RuleText(
            code="SB906",
            name="generate() does not advance the position_ids that it is given",
            kind="silent",
            scope="release",
            looks_for="a generate() with position_ids whose every step is fed the prompt's last "
            "position, and whose logits are not those of one without the argument",
            cause="generate() kept the tensor as it was given and cut it to its last entry at every "
            "step. 5.2 appends the next position.",
            remedy="Pass attention_mask, from which positions are counted, and no position_ids; or "
            "decode step by step with forward.",
            releases="4.48 to 5.1; right from 5.2",
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
            looks_for="ValueError: Passing `MinLengthLogitsProcessor`, where assisted generation "
            "works without min_new_tokens",
            cause="generate() turns min_new_tokens into a MinLengthLogitsProcessor and then refuses "
            "it in the candidate generator. By 5.6 it is left out there.",
            remedy="Leave out min_new_tokens with an assistant, or generate without one.",
            releases="4.57 to 5.2; 4.48, 4.53 and 5.6 and later take it",
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
            looks_for="ValueError … requires `trust_remote_code=True`, for penalty_alpha or "
            "num_beam_groups",
            cause="Contrastive search and group beam search left the library for repositories of "
            "transformers-community; their arguments still choose them.",
            remedy="Use num_beams or sampling; or pass trust_remote_code=True, which downloads and "
            "runs code from the hub as it is that day.",
            releases="4.48 and 4.53 have both; 4.57 and later",
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
            cause="5.0 removed the parameter; **kwargs takes it.",
            remedy="Write a pickle yourself where one is needed.",
            example='torch.save(model.state_dict(), folder / "pytorch_model.bin")',
            releases="5.0.0 and later",
            references=(f"{_PULLS}/42734", f"{_PULLS}/42904"),
        ),
        _ignored_safe_serialization,
    ),
    Rule(
        RuleText(
            code="SB910",
            name="saving names the dtype, or cuts the files, otherwise",
            kind="api",
            scope="release",
            looks_for="another key for the dtype in config.json, or another default of "
            "max_shard_size, than in the reference",
            cause="torch_dtype became dtype by 4.57, which what reads the old name does not find; "
            "max_shard_size went from 5GB to 50GB in 5.0.",
            remedy="Say the dtype at every load, and max_shard_size at every save.",
            example='model.save_pretrained(folder, max_shard_size="5GB")',
            releases="dtype: 4.57 and later; 50GB: 5.0.0 and later",
            references=("transformers/configuration_utils.py, to_dict", f"{_PULLS}/42904"),
        ),
        _changed_saving,
    ),
    Rule(
        RuleText(
            code="SB911",
            name="gradient checkpointing has another default",
            kind="api",
            scope="release",
            looks_for="gradient_checkpointing_enable() without arguments that chooses another "
            "use_reentrant than in the reference",
            cause="5.0 made use_reentrant=False the default. The two differ in which hooks run, in "
            "random states, and in what happens to inputs without gradients.",
            remedy="Say which one.",
            example='model.gradient_checkpointing_enable({"use_reentrant": False})',
            releases="True through 4.57, False from 5.0.0",
            references=("transformers/modeling_utils.py, gradient_checkpointing_enable",),
        ),
        _changed_use_reentrant,
    ),
)

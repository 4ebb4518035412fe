"""SB9xx: rules for common uses around a model, where the release matters and not the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.outcome import differs, has_other_shape
from samebits.findings.case import seen_with
from samebits.findings.rule import Rule, Sighting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import ForwardFacts
    from samebits.records.usage import UsageSignal

    Check = Callable[[Case], Iterator[Sighting]]

_WITHOUT_MAPS = ("None", "an empty tuple", "None for each layer")
_WITH_MAPS = ("tensors", "tensors and None")


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


def _one_more_argument(case: Case) -> Iterator[Sighting]:
    """Find arguments without which forward raises or gives other logits here, and not in the reference."""
    lines: dict[str, list[str]] = {}
    for prompt, name, facts, before in _omissions(case):
        omission, other = facts.omitted[name], before.omitted.get(name)
        if name not in facts.optional or (name in before.optional and other is None):
            continue
        what = f"raises {omission.message}" if omission.message else "gives other logits"
        without = "gives the same logits" if other else "takes no such argument"
        lines.setdefault(name, []).append(
            f"{prompt}: without {name} forward {what}; the reference {without}"
        )
    for name, evidence in lines.items():
        yield Sighting(f"forward({name}=…)", tuple(evidence))


def _argument_left_out(case: Case) -> Iterator[Sighting]:
    """Find prompts whose logits are those of the reference once an argument is added that it does not use."""
    lines: dict[str, list[str]] = {}
    for prompt, name, facts, before in _omissions(case):
        logits = before.logits
        if name in facts.optional or logits is None or logits.hash != facts.omitted[name].complete:
            continue
        lines.setdefault(name, []).append(
            f"{prompt}: with {name} the logits have the bytes of the reference, without it they have others"
        )
    for name, evidence in lines.items():
        yield Sighting(f"forward({name}=…)", tuple(evidence))


def _omissions(case: Case) -> Iterator[tuple[str, str, ForwardFacts, ForwardFacts]]:
    """Yield prompt, argument and both sides' facts where leaving out the argument has an effect here alone."""
    before = case.reference.signals.forward if case.reference is not None else None
    for prompt, facts in (case.capture.signals.forward or {}).items():
        if before is None or prompt not in before:
            continue
        for name, omission in facts.omitted.items():
            other = before[prompt].omitted.get(name)
            if omission.effect != "none" and (other is None or other.effect == "none"):
                yield prompt, name, facts, before[prompt]


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
    Rule("SB901", _no_attentions),
    Rule("SB902", _other_logits),
    Rule("SB903", _packed_sequences),
    Rule("SB904", _short_key_tensors),
    Rule("SB905", _ignored_position),
    Rule("SB906", _frozen_positions),
    Rule("SB907", _min_new_tokens),
    Rule("SB908", _hub_strategies),
    Rule("SB909", _ignored_safe_serialization),
    Rule("SB910", _changed_saving),
    Rule("SB911", _changed_use_reentrant),
)
RULES = (
    *(rule._replace(check=_with_the_asked(rule.check)) for rule in _RULES),
    Rule(
        "SB912", _other_output, explains=frozenset({"outputs"})
    ),  # no made model answers for outputs
    Rule("SB913", _one_more_argument),
    Rule("SB914", _argument_left_out, explains=frozenset({"hidden_states", "logits"})),
)

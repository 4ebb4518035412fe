"""SB894, SB895, SB901 to SB911, SB917 to SB919, SB946, SB956, SB957, SB959 to SB961, SB963, SB967: rules for common uses around a model, where the release matters and not the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from samebits.compare.phases import STORED
from samebits.findings.case import Case, seen_with
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.usage.records import Called, Features, Names, UsageSignal, signal_of
from samebits.text.numbers import first_of, number
from samebits_wire.arguments import (
    CHUNKED,
    CUT_TEXT,
    FIELDS,
    GATHERED,
    HEEDED,
    JOINED,
    LOADED_IN,
    NO_LAYERS,
    OTHER_PROMPT,
    WHOLE_PROMPT,
    WHOLE_TEXT,
)

T = TypeVar("T")
_SOME_MAPS = "tensors and None"
_WITH_MAPS = {
    **dict.fromkeys(("None", "an empty tuple", "None for each layer"), ("tensors", _SOME_MAPS)),
    _SOME_MAPS: ("tensors",),
}
"""What a forward returns -> what it returns with eager attention, if maps are lost."""


def _no_attentions(case: Case) -> Iterator[Sighting]:
    """Find attention maps that were requested and not returned, all or some, though eager attention has them."""
    observed = signal_of(case.capture).attentions
    if observed is None or observed.eager not in _WITH_MAPS.get(observed.given, ()):
        return
    evidence = [
        f"with {observed.implementation} the attentions of the output are {observed.given}",
        f"with eager attention the same model returns {observed.eager}",
    ]
    if observed.set_in_config:
        evidence.append(f"config.output_attentions = True raises {observed.set_in_config}")
    yield Sighting("output_attentions=True", tuple(evidence))


def _other_logits(case: Case) -> Iterator[Sighting]:
    observed = signal_of(case.capture).attentions
    if observed is not None and observed.logits_changed:
        yield Sighting(
            "output_attentions=True",
            (
                f"with {observed.implementation} the logits differ from those without the argument",
                "the call returned maps, which scaled_dot_product_attention cannot do",
            ),
        )


def _packed_sequences(case: Case) -> Iterator[Sighting]:
    packed, dtype = signal_of(case.capture).packed, case.capture.cell.variant.dtype
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
    cache = signal_of(case.capture).cache
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
    observed = signal_of(case.capture).cache_position
    if observed is not None and not observed.named and observed.wrong == "the same logits":
        yield Sighting(
            "forward(cache_position=…)",
            (
                "forward's signature does not name it, and no exception is raised",
                "a cache_position that is wrong by three gives the same bits",
            ),
        )


def _frozen_positions(case: Case) -> Iterator[Sighting]:
    observed = signal_of(case.capture).position_ids
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
    observed = signal_of(case.capture).assisted
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
        for name, error in (signal_of(case.capture).strategies or {}).items()
        if "trust_remote_code=True" in error
    }
    if refused:
        yield Sighting(
            " and ".join(f"generate({name}=…)" for name in refused), tuple(refused.values())
        )


def _ignored_safe_serialization(case: Case) -> Iterator[Sighting]:
    saved = signal_of(case.capture).saved
    if saved is not None and any(name.endswith(".safetensors") for name in saved.files):
        yield Sighting(
            "save_pretrained(safe_serialization=False)", (f"it wrote {', '.join(saved.files)}",)
        )


def _changed_saving(case: Case) -> Iterator[Sighting]:
    """Find differences in what a save writes; a refused save does not count for the keys."""
    saves = (signal_of(case.capture).saved, signal_of(case.reference).saved)
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


def _other_features(case: Case) -> Iterator[Sighting]:
    """Find methods that raise on one side, or return other features though forward returns the same."""
    for name, reference, candidate in _features(case):
        sides = [_in_words(side) for side in (reference, candidate)]
        is_same_forward = case.outcome("outputs") == "identical"
        differs = bool(reference.digest and candidate.digest) and is_same_forward
        if _one_answers(case, name, reference, candidate):
            raising = _raising(case, reference.exception, candidate.exception)
            yield Sighting(_call(name), side_lines(case, *sides), raises=raising)
        elif differs and (reference.shape, reference.digest) != (candidate.shape, candidate.digest):
            line = "forward returns the same bits for all prompts"
            yield Sighting(_call(name), (*side_lines(case, *sides), line))


def _raising(case: Case, reference: str, candidate: str) -> str:
    """Return the stack of the one side that raises; '' where both do, or none."""
    if bool(reference) is bool(candidate) or case.reference is None:
        return ""
    return (case.reference if reference else case.capture).cell.stack


def _call(name: str) -> str:
    """Return a method as a call; what is a call already stays."""
    return name if name.endswith(")") else f"{name}()"


def _one_answers(case: Case, name: str, reference: Features, candidate: Features) -> bool:
    """Tell whether one side alone returns; of a forward with features, whether it returns what it gives for their inputs."""
    if _call(name) != name:
        return bool(reference.refused) != bool(candidate.refused)
    first, second = (side.holds(case.capture.cell.variant.dtype) for side in (reference, candidate))
    return (first and not second) or (second and bool(reference.raises))


def _other_return(case: Case) -> Iterator[Sighting]:
    for name, reference, candidate in _features(case):
        if reference.returned and candidate.returned and reference.returned != candidate.returned:
            lines = (f"returns {side.returned}" for side in (reference, candidate))
            yield Sighting(f"{name}()", side_lines(case, *lines))


def _features(case: Case) -> Iterator[tuple[str, Features, Features]]:
    for name, before, after in _of_both(case, lambda usage: usage.features):
        if not before.left_out and not after.left_out:
            yield name, before, after


def _of_both(
    case: Case, field: Callable[[UsageSignal], Mapping[str, T] | None]
) -> Iterator[tuple[str, T, T]]:
    """Yield what both sides have in a field of their answers."""
    reference, candidate = (field(signal_of(s)) or {} for s in (case.reference, case.capture))
    for name in (name for name in reference if name in candidate):
        yield name, reference[name], candidate[name]


def _in_words(features: Features) -> str:
    if raised := features.exception:
        return f"raises {raised}"
    if features.distance is not None:
        return f"{number(features.distance)} from the outputs of the inputs themselves"
    shape = " x ".join(map(str, features.shape))
    return f"{features.returned} {shape} {features.digest[:8]}"


def _other_optional(case: Case) -> Iterator[Sighting]:
    """Find packages and kernels that the code asks for on one side only."""
    reference, candidate = (signal_of(s).optional for s in (case.reference, case.capture))
    if reference is None or candidate is None or set(reference) == set(candidate):
        return
    sides = [sorted({*a} - {*b}) for a, b in ((reference, candidate), (candidate, reference))]
    lines = (", ".join(first_of(side, _SHOWN, "other")) or _NOTHING for side in sides)
    yield Sighting("what a machine with a GPU may have", side_lines(case, *lines))


_SHOWN = 6
_PLACES = 2
_NOTHING = "no such package or kernel beside those that both ask for"


def _other_names(case: Case) -> Iterator[Sighting]:
    """Find names of the model that the reference alone has, and those that it leaves to a model within."""
    sides = [signal_of(side).names for side in (case.reference, case.capture)]
    yield from _names_elsewhere(case, "model", *sides)


def _other_config_names(case: Case) -> Iterator[Sighting]:
    """Find fields of parts of the config that it answers itself in one release and not in the other."""
    reference, candidate = (signal_of(s).config_names for s in (case.reference, case.capture))
    if reference is not None and candidate is not None:
        common = tuple(name for name in reference.own if name in candidate.within)
        reference = reference.model_copy(update={"own": common})
    yield from _names_elsewhere(case, "config", reference, candidate)


def _names_elsewhere(
    case: Case, owner: str, reference: Names | None, candidate: Names | None
) -> Iterator[Sighting]:
    if reference is None or candidate is None or reference.class_name != candidate.class_name:
        return
    lost = [name for name in reference.own if candidate.lacks(name)]
    raised = [name for name in candidate.own if reference.lacks(name) and name in reference.within]
    if lost:
        lines = side_lines(case, _has(lost), _lacks(candidate, lost, owner))
        yield Sighting(_names_of(candidate, lost), lines, raises=case.capture.cell.stack)
    if raised:
        error = _lacks(reference, raised, owner)
        where, stack = _names_of(candidate, raised), _raising(case, error, "")
        lines = side_lines(case, error, _has(raised))
        yield Sighting(where, lines, raises=stack, of_reference=True)


def _names_of(side: Names, names: list[str]) -> str:
    return f"{side.class_name}: {', '.join(first_of(names, _PLACES, 'name'))}"


def _has(names: list[str]) -> str:
    return f"has {', '.join(first_of(names, _SHOWN, 'name'))}"


def _lacks(side: Names, names: list[str], owner: str) -> str:
    """Return what raises, and where it is within the model or the config."""
    inner = [f"{owner}.{side.within[name]}.{name}" for name in names if name in side.within]
    places = f"; there is {', '.join(first_of(inner, _SHOWN, 'name'))}" if inner else ""
    return f"AttributeError for {', '.join(first_of(names, _SHOWN, 'name'))}{places}"


def _other_attention(case: Case) -> Iterator[Sighting]:
    """Find parts of a model that get another attention when a user names one."""
    for way, *sides in _of_both(case, lambda usage: usage.attention):
        differing = [
            part
            for part in sides[0].parts.keys() & sides[1].parts.keys()
            if sides[0].parts[part] != sides[1].parts[part]
        ]
        if differing or bool(sides[0].refused) != bool(sides[1].refused):
            lines = (
                f"raises {side.refused}" if side.refused else _in_pairs(side.parts)
                for side in sides
            )
            raising = _raising(case, *(side.refused for side in sides))
            yield Sighting(f"attn_implementation, {way}", side_lines(case, *lines), raises=raising)


def _other_method(case: Case) -> Iterator[Sighting]:
    """Find methods that do something else; those that raise on one side are named by SB931."""
    for call, before, after in _of_both(case, lambda usage: usage.methods):
        gave = (before.gave, after.gave)
        if call in {CHUNKED, JOINED}:
            continue  # they have findings of their own
        if call.startswith("generate(") and case.first() is not None:
            continue  # tokens and their times follow from what differs
        if "generate()" in call and case.first() == "inputs":
            continue  # steps and lengths of another prompt
        if all(gave) and gave[0] != gave[1]:
            follows = frozenset({"SB890"} if call == FIELDS else ())
            yield Sighting(call, side_lines(case, *gave), follows=follows)


def _dropped_keywords(case: Case) -> Iterator[Sighting]:
    """Find steps of generate() without the hidden states that were requested, where own code drops the request."""
    for call, before, after in _of_both(case, lambda usage: usage.methods):
        gave = (before.gave, after.gave)
        empty = [NO_LAYERS in side for side in gave]
        if call != FIELDS or not all(gave) or empty[0] == empty[1]:
            continue
        for idiom in case.idioms("keywords of generate() dropped"):
            where = f"{idiom.file}:{idiom.line}"
            yield Sighting(where, side_lines(case, *gave), of_reference=empty[0])


def _right_once(asked: str, right: str, wrong: str) -> Check:
    """Return a check for a call that gives what is right on one side alone, such as scores of a prompt in chunks."""

    def check(case: Case) -> Iterator[Sighting]:
        for call, before, after in _of_both(case, lambda usage: usage.methods):
            gave = before.gave, after.gave
            if call == asked and {*gave} == {right, wrong}:
                yield Sighting(call, side_lines(case, *gave), of_reference=after.gave == right)

    return check


def _not_gathered(case: Case) -> Iterator[Sighting]:
    """Find outputs that nn.DataParallel gathers on one side alone."""
    for call, *sides in _of_both(case, lambda usage: usage.methods):
        raising = _raising(case, *(side.refused for side in sides))
        if call == GATHERED and raising and any(side.gave for side in sides):
            lines = (side.gave or f"raises {side.refused}" for side in sides)
            yield Sighting(call, side_lines(case, *lines), raises=raising)


def _doing_otherwise(
    field: Callable[[UsageSignal], Mapping[str, Called] | None], *, in_bfloat16: bool = False
) -> Check:
    """Return a check for calls that do something else on each side; SB932 names those that raise on one."""

    def check(case: Case) -> Iterator[Sighting]:
        for call, before, after in _of_both(case, field):
            gave = (before.gave, after.gave)
            is_asked = (call == LOADED_IN) is in_bfloat16 and _ALL_IN_FLOAT32 not in gave
            if is_asked and all(gave) and gave[0] != gave[1]:
                of_reference = after.gave == HEEDED
                yield Sighting(call, side_lines(case, *gave), of_reference=of_reference)

    return check


def _unheeded_dtype(case: Case) -> Iterator[Sighting]:
    """Find loads that leave all parameters in another dtype than the call names."""
    load = case.capture.signals.load
    if load is not None:
        requested = load.requested_dtype.removeprefix("torch.")
        names = {name.removeprefix("torch.") for name in load.parameter_dtypes}
        if names and requested not in names and names | {requested} <= _PLAIN_DTYPES:
            where = f"from_pretrained(dtype='{requested}')"
            yield Sighting(where, (f"parameters in {' and '.join(sorted(names))}",))
    loads = signal_of(case.capture).loads or {}
    if (called := loads.get(LOADED_IN)) is not None and called.gave == _ALL_IN_FLOAT32:
        yield Sighting(LOADED_IN, (called.gave,))


_ALL_IN_FLOAT32 = "parameters in float32"
_PLAIN_DTYPES = frozenset({"float32", "bfloat16", "float16", "float64"})
"""Dtypes of a model that nothing quantized."""


def _in_pairs(parts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _changed_fact(
    case: Case,
    where: str,
    fact: Callable[[UsageSignal], object],
    describe: Callable[[UsageSignal], str],
) -> Iterator[Sighting]:
    """Find a fact that differs from the reference's; None on either side is not compared."""
    if case.reference is None:
        return
    candidate, reference = signal_of(case.capture), signal_of(case.reference)
    if None in (fact(candidate), fact(reference)) or fact(candidate) == fact(reference):
        return
    yield Sighting(where, side_lines(case, describe(reference), describe(candidate)))


def _with_the_asked(check: Check) -> Check:
    """Return a check whose evidence says so where a made model answered for a large one."""

    def checked(case: Case) -> Iterator[Sighting]:
        lines = seen_with(signal_of(case.capture).asked_of)
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
    Rule("SB917", _other_features),
    Rule("SB957", _other_optional),
    Rule("SB959", _other_names),
    Rule("SB961", _other_config_names),
    Rule("SB918", _other_return),
    Rule("SB919", _other_attention),
    Rule("SB946", _other_method),
    Rule("SB890", _dropped_keywords),
    Rule("SB956", _doing_otherwise(lambda usage: usage.settings)),
    Rule("SB963", _right_once(CHUNKED, WHOLE_PROMPT, OTHER_PROMPT)),
    Rule("SB895", _right_once(JOINED, WHOLE_TEXT, CUT_TEXT)),
    Rule("SB894", _not_gathered),
    Rule("SB960", _doing_otherwise(lambda usage: usage.loads)),
    Rule("SB324", _unheeded_dtype, explains=STORED),
    Rule("SB967", _doing_otherwise(lambda usage: usage.loads, in_bfloat16=True)),
)
RULES = tuple(rule._replace(check=_with_the_asked(rule.check)) for rule in _RULES)

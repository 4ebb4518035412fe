"""Comparison of what two releases make of the same logits in generate().

The logits come from a table of exact values, so they are never the reason for a difference. What
rounds (the sums of beams) is not compared, and sequences whose sums are nearly equal are a tie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from samebits.questions.usage.generation import GenerationSignal, GenerationWay

TIE = 2.0**-10
"""Relative distance of two sums of log-probabilities that no rounding of float32 can reach."""

NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "early_stopping": False,
    "length_penalty": 1.0,
    "max_length": 20,
    "min_length": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "renormalize_logits": False,
    "remove_invalid_values": False,
    **dict.fromkeys(
        (
            "max_new_tokens",
            "min_new_tokens",
            "eos_token_id",
            "bos_token_id",
            "decoder_start_token_id",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "suppress_tokens",
            "begin_suppress_tokens",
            "bad_words_ids",
            "exponential_decay_length_penalty",
            "penalty_alpha",
            "prompt_lookup_num_tokens",
        )
    ),
}
"""Field of a generation config that decides which tokens come -> what generate() does without it."""
OF_SAMPLING: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}
"""The same for fields that have an effect only while sampling."""
_SHOWN = 8
"""Tokens of a sequence that are shown, counted from its end."""
_GIVEN = {"do_sample", "num_beams", "eos_token_id", "max_length", "max_new_tokens"}
"""Fields that every way but ``defaults`` names."""
_OF_BEAMS = ("early_stopping", "length_penalty")
_NOT_OF_GREEDY = {
    *OF_SAMPLING,
    *_OF_BEAMS,
    "do_sample",
    "num_beams",
    "max_length",
    "max_new_tokens",
    "bos_token_id",
}
"""Fields without an effect on the greedy decode of a cell: it names them, or gives the first ids itself."""


class OtherValue(NamedTuple):
    """A default, a way or a processor that differs, and what both sides have."""

    name: str
    reference: str
    candidate: str


def defaults(reference: GenerationSignal, candidate: GenerationSignal) -> Iterator[OtherValue]:
    """Yield the defaults of generate() that differ and have an effect on one side at least."""
    sides = reference.config, candidate.config
    fields = dict(NEUTRAL)
    if any(side.get("do_sample") for side in sides):
        fields |= OF_SAMPLING
    if all((side.get("num_beams") or 1) == 1 for side in sides):
        fields = {name: value for name, value in fields.items() if name not in _OF_BEAMS}
    for name, neutral in fields.items():
        values = [_value(side.get(name), neutral) for side in sides]
        if values[0] != values[1]:
            yield OtherValue(name, *map(repr, values))


def decides_greedy(default: OtherValue) -> bool:
    """Return True if a default that differs decides which tokens the greedy decode of a cell takes."""
    return default.name not in _NOT_OF_GREEDY


def _value(value: object, neutral: object) -> object:
    """Return a field as generate() reads it: one id in a list is that id."""
    if value is None or value == []:
        return neutral
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def choices(reference: GenerationSignal, candidate: GenerationSignal) -> Iterator[OtherValue]:
    """Yield the ways of generating with the same arguments that choose otherwise."""
    other = {default.name for default in defaults(reference, candidate)}
    if other - _GIVEN:
        return  # the ways take what they do not name from the defaults
    for way, first, second in _pairs(reference, candidate):
        if first.refused or second.refused or (way == "defaults" and other):
            continue
        step = _other_scores(first, second)
        if step is not None:
            yield OtherValue(way, *_scored(step))
        elif first.tokens != second.tokens and not _may_differ(first, second):
            yield OtherValue(way, *(_tokens(side.tokens) for side in (first, second)))
        elif first.tokens == second.tokens and _other_sums(first, second):
            yield OtherValue(f"{way}, sequences_scores", *map(_sums, (first, second)))


def refusals(reference: GenerationSignal, candidate: GenerationSignal) -> Iterator[OtherValue]:
    """Yield the ways that raise here and return tokens in the reference.

    A model that cannot even generate greedily has an exception of its own in the report.
    """
    greedy = candidate.ways.get("greedy")
    if greedy is None or greedy.refused:
        return
    for way, first, second in _pairs(reference, candidate):
        if second.refused and not first.refused:
            yield OtherValue(way, _tokens(first.tokens), f"raises {second.refused}")


def processors(reference: GenerationSignal, candidate: GenerationSignal) -> Iterator[OtherValue]:
    """Yield the logits processors of both sides that give other scores, or raise only here."""
    for name, first in reference.processors.items():
        second = candidate.processors.get(name)
        if second is None or first.refused:
            continue
        if second.refused:
            yield OtherValue(name, "returns scores", f"raises {second.refused}")
        elif first.scores != second.scores:
            yield OtherValue(name, f"scores {first.scores[:12]}", f"scores {second.scores[:12]}")


def _pairs(
    reference: GenerationSignal, candidate: GenerationSignal
) -> Iterator[tuple[str, GenerationWay, GenerationWay]]:
    if reference.prompt != candidate.prompt:
        return
    for way, first in reference.ways.items():
        second = candidate.ways.get(way)
        if second is not None and first.end == second.end:
            yield way, first, second


def _other_scores(first: GenerationWay, second: GenerationWay) -> int | None:
    """Return the first step with other scores behind the same tokens; None if there is none."""
    behind = _new_tokens(first), _new_tokens(second)
    for step, (a, b) in enumerate(zip(first.scores, second.scores, strict=False)):
        if behind[0][:step] != behind[1][:step]:
            return None
        if a != b:
            return step
    return None


def _new_tokens(way: GenerationWay) -> tuple[int, ...]:
    return way.tokens[0][-len(way.scores) :] if way.tokens and way.scores else ()


def _may_differ(first: GenerationWay, second: GenerationWay) -> bool:
    """Return True if tokens differ by chance: drawn, a tie of beams, another split of forwards."""
    if first.drew and second.drew:
        return True
    if bool(first.values) != bool(second.values):
        return True  # beams and no beams: the defaults differ
    if any(a != b for a, b in zip(first.fed, second.fed, strict=False)):
        return not first.values and not first.scores  # drafts: how many are checked is free
    values = [*first.values, *second.values]
    return any(
        0 < abs(a - b) <= TIE * max(abs(a), abs(b))
        for i, a in enumerate(values)
        for b in values[i + 1 :]
    )


def _other_sums(first: GenerationWay, second: GenerationWay) -> bool:
    """Return True if beams of the same tokens have scores that are further apart than by rounding."""
    pairs = zip(first.values, second.values, strict=False)
    return any(abs(a - b) > TIE * max(abs(a), abs(b)) for a, b in pairs)


def _sums(way: GenerationWay) -> str:
    return ", ".join(f"{value:.6g}" for value in way.values)


def _scored(step: int) -> tuple[str, str]:
    return f"scores of step {step}", "other scores from the same logits"


def _tokens(rows: tuple[tuple[int, ...], ...]) -> str:
    return "; ".join(" ".join(map(str, row[-_SHOWN:])) for row in rows)

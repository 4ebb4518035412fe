"""SB896, SB926 to SB929, SB947 to SB949, SB958, SB962: arguments that one release ignores, refuses or takes otherwise, hidden states, masks of ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from samebits.findings.case import Case
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.arguments.compare import (
    CHANGED,
    ENDED,
    differences,
    ended_elsewhere,
    led_elsewhere,
    masked_otherwise,
    other_states,
)
from samebits.questions.arguments.records import ARGUMENTS, ArgumentEffect, Kind, Method
from samebits_wire.arguments import MORE_THAN_TEXT, OF_ANOTHER_TOKENIZER, STREAMS

_OF_RELEASE = (
    f"assistant_model ({OF_ANOTHER_TOKENIZER})",
    "assistant_early_exit",
    "prefill_chunk_size",
    "watermarking_config",
)
"""Arguments that a release refuses whatever the model."""
_WORDS = {"none": "no effect", "order of sums": "no more than another order of sums"}
_MAX_VALUES = 4
"""Logits that the evidence shows."""


def _of_kind(method: Method, kind: Kind, *, of_release: bool = False) -> Check:
    """Return a check for arguments of a method whose effects differ in this way.

    What is refused by a release, and not by a model, has a check of its own.
    """

    def check(case: Case) -> Iterator[Sighting]:
        for each in ARGUMENTS.of_both(case.reference, case.capture, differences):
            if (each.method, each.kind) != (method, kind):
                continue
            if _is_of_release(each.argument) != of_release:
                continue
            sides = (in_words(side, method) for side in (each.reference, each.candidate))
            yield Sighting(
                call_of(method, each.argument),
                side_lines(case, *sides),
                of_reference=each.of_reference,
            )

    return check


def _is_of_release(argument: str) -> bool:
    """Tell whether a release alone refuses an argument; how a prompt with an image is split is the model's part, too."""
    return argument.startswith(_OF_RELEASE) and not argument.endswith(f"({MORE_THAN_TEXT})")


def call_of(method: Method, argument: str) -> str:
    """Return a call with an argument, as reports show it."""
    return f"{method}({argument}=…)"


def in_words(effect: ArgumentEffect, method: Method) -> str:
    """Return what an argument does, as lines of evidence and tables have it."""
    words = _WORDS.get(effect.effect, effect.effect)
    words = effect.message if effect.effect == "raises" else words
    beside = f" ({effect.message})" if effect.message and effect.effect != "raises" else ""
    place = f" at {effect.at}" if effect.at else ""
    named = "" if effect.named else f"; {method} does not name it"
    return f"{words}{beside}{place}{named}"


def _other_states(case: Case) -> Iterator[Sighting]:
    """Yield the fields of hidden states whose entries hold something else, once for prompts with the same."""
    seen = set()
    for each in ARGUMENTS.of_both(case.reference, case.capture, other_states):
        if each[1:] not in seen:
            seen.add(each[1:])
            sides = (states_in_words(side) for side in (each.reference, each.candidate))
            place = f"forward(output_hidden_states=True): {each.prompt} · {each.field}"
            yield Sighting(place, side_lines(case, *sides))


def states_in_words(states: Sequence[str]) -> str:
    """Return what the entries of a field hold."""
    return ", ".join(state or "no layer's output" for state in states)


def _masked_otherwise(case: Case) -> Iterator[Sighting]:
    others = ARGUMENTS.of_both(case.reference, case.capture, masked_otherwise)
    for prompt, before, after in others:
        yield Sighting(
            f"forward(attention_mask=ones): {prompt}",
            side_lines(case, *(in_words(side, "forward") for side in (before, after))),
            of_reference=before.effect == CHANGED,
        )


def _led_elsewhere(case: Case) -> Iterator[Sighting]:
    others = ARGUMENTS.of_both(case.reference, case.capture, led_elsewhere)
    for method, name, *effects in others:
        if any(side.effect == ENDED for side in effects):
            words = (in_words(side, method) for side in effects)
            yield Sighting(call_of(method, name), side_lines(case, *words))
            continue
        of = "logits" if method == "forward" else "scores"
        sides = (f"{of} {_first(side.numbers)}" for side in effects)
        without = f"without it both compute {_first(effects[0].without)}"
        yield Sighting(call_of(method, name), (*side_lines(case, *sides), without))


def _ended_elsewhere(case: Case) -> Iterator[Sighting]:
    ways = ARGUMENTS.of_both(case.reference, case.capture, ended_elsewhere)
    for name, before, after in ways:
        yield Sighting(
            call_of("generate", name),
            side_lines(case, *(in_words(side, "generate") for side in (before, after))),
            of_reference=before.effect == ENDED,
        )


def _lost_without_a_cache(case: Case) -> Iterator[Sighting]:
    """Find a generate() of several streams that computes something else without a cache.

    In a lower precision than float32 rounding may be as large.
    """
    answer = ARGUMENTS.in_cell(case.capture)
    name = f"use_cache ({STREAMS})"
    effect = answer.generate.get(name) if answer is not None else None
    is_exact = case.capture.cell.variant.dtype == "float32"
    if effect is not None and effect.effect == CHANGED and is_exact:
        yield Sighting("generate(use_cache=False)", (f"it leads to {CHANGED} than with a cache",))


def _first(numbers: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in numbers[:-1][:_MAX_VALUES]) + ", …"


RULES = (
    Rule("SB896", _lost_without_a_cache),
    Rule("SB926", _of_kind("forward", "ignored")),
    Rule("SB927", _of_kind("forward", "refused"), is_general=True),
    Rule("SB928", _of_kind("generate", "ignored")),
    Rule("SB929", _of_kind("generate", "refused"), is_general=True),
    Rule("SB958", _of_kind("generate", "refused", of_release=True), is_general=True),
    Rule("SB947", _other_states),
    Rule("SB948", _masked_otherwise),
    Rule("SB949", _led_elsewhere),
    Rule("SB962", _ended_elsewhere),
)

"""SB821 to SB825, SB915, SB916, SB925, SB954: rules for what generate() does by default, with the same logits, and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from samebits.findings.case import Case, seen_with
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.usage import compare
from samebits.questions.usage.records import (
    CACHES,
    Beams,
    SecondCall,
    UsageSignal,
    signal_of,
    with_cache,
)
from samebits.text.numbers import number, plural

if TYPE_CHECKING:
    from samebits.questions.usage.compare import OtherValue
    from samebits.questions.usage.generation import GenerationSignal

    Compare = Callable[[GenerationSignal, GenerationSignal], Iterator[OtherValue]]

_MAX_LINES = 6
"""Differences of one finding that the evidence shows, two lines each."""


def _differing(
    where: str, compare_both: Compare, explains: Callable[[OtherValue], bool] = lambda _: True
) -> Check:
    """Return a check for a comparison of both sides' answers; the first difference names it.

    ``explains`` tells whether a difference may be why the cell's own tokens differ.
    """

    def check(case: Case) -> Iterator[Sighting]:
        reference, candidate = signal_of(case.reference), signal_of(case.capture)
        if case.reference is None or reference.generation is None or candidate.generation is None:
            return
        others = list(compare_both(reference.generation, candidate.generation))
        if not others:
            return
        lines = [
            f"{other.name}, {line}"
            for other in others[:_MAX_LINES]
            for line in side_lines(case, other.reference, other.candidate)
        ]
        if len(others) > _MAX_LINES:
            lines.append(f"and {len(others) - _MAX_LINES} more")
        lines += seen_with(candidate.asked_of)
        of_prompts = None if any(map(explains, others)) else ()
        yield Sighting(f"{where}: {others[0].name}", tuple(lines), of_prompts=of_prompts)

    return check


def _stale_beams(case: Case) -> Iterator[Sighting]:
    """Find beams that go on with the state of another beam."""
    observed = signal_of(case.capture)
    if observed.beams is not None and _is_mixed(observed.beams, case):
        moved = plural(observed.beams.n_moved, "time")
        yield Sighting(
            "generate(num_beams=3)",
            (
                f"beams took each other's places {moved} in six steps",
                *_distances_of(observed.beams),
                *seen_with(observed.asked_of),
            ),
        )


def _mixed_rows(case: Case) -> Iterator[Sighting]:
    """Find answers that go on with the image, the video or the sound of another row."""
    observed = signal_of(case.capture)
    for prompt, beams in (observed.several or {}).items():
        if _is_mixed(beams, case):
            where = f"generate(num_beams=2, num_return_sequences=2) of {prompt}"
            yield Sighting(where, (*_distances_of(beams), *seen_with(observed.asked_of)))


def _is_mixed(beams: Beams, case: Case) -> bool:
    return beams.keeps_state(case.capture.cell.variant.dtype) is False


def _distances_of(beams: Beams) -> Iterator[str]:
    assert beams.by_cache is not None
    assert beams.of_others is not None
    assert beams.greedy is not None
    yield f"their last logits are {number(beams.by_cache)} away from those without a cache"
    yield f"the logits of two beams differ by {number(beams.of_others)}"
    yield f"greedy decoding over the cache is {number(beams.greedy)} away"


def _unlike_the_first(where: str, call: Callable[[UsageSignal], SecondCall | None]) -> Check:
    """Return a check for a second generate() that chooses from other scores than the first."""

    def check(case: Case) -> Iterator[Sighting]:
        observed, dtype = signal_of(case.capture), case.capture.cell.variant.dtype
        second = call(observed)
        if second is not None and second.agrees(dtype) is False:
            yield Sighting(where, (*_distances(second), *seen_with(observed.asked_of)))

    return check


def _other_caches(case: Case) -> Iterator[Sighting]:
    """Find each kind of cache with which generate() chooses from other scores than by default."""
    for name in ("static", *CACHES):
        yield from _unlike_the_first(f"{name} cache", with_cache(name))(case)


def _distances(second: SecondCall) -> tuple[str, ...]:
    assert second.apart is not None
    assert second.of_steps is not None
    return (
        f"new tokens: {second.steps[0]} and {second.steps[1]}, the first {second.n_same} the same",
        f"up to there the scores of the second call are {number(second.apart)} away",
        f"the scores of the first and the last step differ by {number(second.of_steps)}",
    )


RULES = (
    Rule(
        "SB821",
        _differing("generation_config", compare.defaults, compare.decides_greedy),
        explains=frozenset({"decode", "greedy"}),
    ),
    Rule("SB822", _differing("generate()", compare.choices)),
    Rule("SB823", _differing("logits processor", compare.processors)),
    Rule("SB824", _differing("generate()", compare.refusals)),
    Rule("SB825", _stale_beams),
    Rule("SB915", _unlike_the_first("generate() again", lambda usage: usage.repeated)),
    Rule("SB916", _other_caches),
    Rule("SB925", _mixed_rows),
    Rule("SB954", _unlike_the_first("static cache", lambda usage: usage.flex)),
)

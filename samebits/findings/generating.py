"""SB821 to SB824: rules for what generate() does by default, and with the same logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare import generation
from samebits.findings.case import seen_with
from samebits.findings.rule import Rule, Sighting
from samebits.text.numbers import number, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.compare.generation import OtherValue
    from samebits.findings.case import Case
    from samebits.records.generation import GenerationSignal

    Compare = Callable[[GenerationSignal, GenerationSignal], Iterator[OtherValue]]
    Check = Callable[[Case], Iterator[Sighting]]

_MAX_LINES = 6
"""Differences of one finding that the evidence shows, two lines each."""


def _differing(where: str, compare: Compare) -> Check:
    """Return a check for a comparison of both sides' answers; the first difference names it."""

    def check(case: Case) -> Iterator[Sighting]:
        usage = case.reference.signals.usage if case.reference is not None else None
        if case.reference is None or usage is None:
            return
        if usage.generation is None or case.usage.generation is None:
            return
        others = list(compare(usage.generation, case.usage.generation))
        if not others:
            return
        stacks = case.reference.cell.stack, case.capture.cell.stack
        lines = [
            line
            for other in others[:_MAX_LINES]
            for line in (
                f"{other.name}, {stacks[0]}: {other.reference}",
                f"{other.name}, {stacks[1]}: {other.candidate}",
            )
        ]
        if len(others) > _MAX_LINES:
            lines.append(f"and {len(others) - _MAX_LINES} more")
        lines += seen_with(case.usage.asked_of)
        yield Sighting(f"{where}: {others[0].name}", tuple(lines))

    return check


def _stale_beams(case: Case) -> Iterator[Sighting]:
    """Find beams that go on with the state of another beam."""
    beams, dtype = case.usage.beams, case.capture.cell.variant.dtype
    if beams is None or beams.keeps_state(dtype) is not False:
        return
    assert beams.by_cache is not None
    assert beams.of_others is not None
    assert beams.greedy is not None
    yield Sighting(
        "generate(num_beams=3)",
        (
            f"beams took each other's places {plural(beams.n_moved, 'time')} in six steps",
            f"their last logits are {number(beams.by_cache)} away from those without a cache",
            f"the logits of two beams differ by {number(beams.of_others)}",
            f"greedy decoding over the cache is {number(beams.greedy)} away",
            *seen_with(case.usage.asked_of),
        ),
    )


RULES = (
    Rule("SB821", _differing("generation_config", generation.defaults)),
    Rule("SB822", _differing("generate()", generation.choices)),
    Rule("SB823", _differing("logits processor", generation.processors)),
    Rule("SB824", _differing("generate()", generation.refusals)),
    Rule("SB825", _stale_beams),
)

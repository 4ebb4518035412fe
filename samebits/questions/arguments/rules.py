"""SB926 and SB927: arguments of forward that one release ignores or refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.arguments.compare import differences
from samebits.questions.arguments.records import signal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.questions.arguments.records import ArgumentEffect


def _of_kind(kind: str) -> Callable[[Case], Iterator[Sighting]]:
    """Return a check for arguments whose effects differ in this way."""

    def check(case: Case) -> Iterator[Sighting]:
        reference = signal_of(case.reference) if case.reference is not None else None
        candidate = signal_of(case.capture)
        if case.reference is None or reference is None or candidate is None:
            return
        for each in differences(reference, candidate):
            if each.kind != kind:
                continue
            sides = side_lines(case, in_words(each.reference), in_words(each.candidate))
            yield Sighting(f"forward({each.argument}=…)", sides)

    return check


def in_words(effect: ArgumentEffect) -> str:
    """Return what an argument does, as lines of evidence and tables have it."""
    words = {"none": "no effect", "raises": effect.message}.get(effect.effect, effect.effect)
    beside = f" ({effect.message})" if effect.message and effect.effect != "raises" else ""
    place = f" at {effect.at}" if effect.at else ""
    named = "" if effect.named else "; forward does not name it"
    return f"{words}{beside}{place}{named}"


RULES = (
    Rule("SB926", _of_kind("ignored")),
    Rule("SB927", _of_kind("refused")),
)

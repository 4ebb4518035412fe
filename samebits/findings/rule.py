"""Rules: the text of a finding, and the function that recognises the defect in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.finding import RuleText


class Sighting(NamedTuple):
    """One place where a defect was seen, and the evidence, one line each."""

    where: str
    evidence: tuple[str, ...]
    saver: str = ""
    """The stack that saves, if it is about what a save writes."""


class Rule(NamedTuple):
    """A named defect."""

    text: RuleText
    check: Callable[[Case], Iterator[Sighting]]
    """Yields only where the evidence leaves no doubt."""


def raised(type_name: str, pattern: str) -> Callable[[Case], Iterator[Sighting]]:
    """Return a check for an exception of these types (``A|B``) whose message matches."""

    def check(case: Case) -> Iterator[Sighting]:
        if case.raised(type_name, pattern):
            yield Sighting(case.raised_at(), case.exception_lines())

    return check

"""A rule: what it says of every finding alike, and the function that recognises one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.finding import RuleText


class Seen(NamedTuple):
    """One sighting: where, and what was seen there, one line each."""

    where: str
    evidence: tuple[str, ...]


class Rule(NamedTuple):
    """A named defect."""

    text: RuleText
    check: Callable[[Case], Iterator[Seen]]
    """Yields nothing unless the evidence is unmistakable."""


def raised(type_name: str, pattern: str) -> Callable[[Case], Iterator[Seen]]:
    """Return a check for an exception of one of the types (``A|B``) whose message matches."""

    def check(case: Case) -> Iterator[Seen]:
        if case.raised(type_name, pattern):
            yield Seen(case.raised_at(), case.told())

    return check

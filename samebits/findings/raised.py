"""SB93x: checks that raise in one release and answer in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.raised import checks, checks_of_jobs
from samebits.findings.rule import Rule, Sighting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.compare.raised import Check
    from samebits.findings.case import Case


def _one_side(*, of_release: bool) -> Callable[[Case], Iterator[Sighting]]:
    def check(case: Case) -> Iterator[Sighting]:
        if case.reference is None:
            return
        for found in (*checks(case.reference, case.capture), *_of_jobs(case)):
            if not found.differs or found.is_of_release != of_release:
                continue
            here, there = case.capture.cell.stack, case.reference.cell.stack
            sides = (here, f"the reference {there}")
            raising, answering = sides if found.candidate else sides[::-1]
            yield Sighting(
                f"{raising} raises, {answering} answers: {found.name}",
                (found.candidate or found.reference, f"{raising} raises; {answering} answers"),
                raises=here if found.candidate else there,
            )

    return check


def _of_jobs(case: Case) -> tuple[Check, ...]:
    """Return the checks of questions' jobs; none of a cell that fails, where they only follow."""
    if case.reference is None or case.failure is not None:
        return ()
    return checks_of_jobs(case.answers, case.reference.cell.stack, case.capture.cell.stack)


RULES = (
    Rule("SB931", _one_side(of_release=False)),
    Rule("SB932", _one_side(of_release=True)),
)

"""SB93x: checks that raise in one release and answer in the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from samebits.compare.raised import Check, checks, checks_of_jobs
from samebits.findings.case import Case
from samebits.findings.rule import Rule, Sighting
from samebits.records.capture import Capture


def _one_side(*, of_release: bool) -> Callable[[Case], Iterator[Sighting]]:
    def find(case: Case) -> Iterator[Sighting]:
        if case.reference is None:
            return
        candidate, reference = case.capture.cell.stack, case.reference.cell.stack
        sides = (candidate, f"the reference {reference}")
        for check in _checks(case, case.reference):
            if not check.differs or check.is_of_release != of_release:
                continue
            raising, answering = sides if check.candidate else sides[::-1]
            yield Sighting(
                f"{raising} raises, {answering} works: {check.name}",
                (check.candidate or check.reference, f"{raising} raises; {answering} works"),
                raises=candidate if check.candidate else reference,
            )

    return find


def _checks(case: Case, reference: Capture) -> tuple[Check, ...]:
    """Return all checks; questions' jobs have none of a cell that fails, where they only follow."""
    of_runs = checks(reference, case.capture)
    if case.failure is not None:
        return of_runs
    stacks = reference.cell.stack, case.capture.cell.stack
    return (*of_runs, *checks_of_jobs(case.answers, *stacks))


RULES = (
    Rule("SB931", _one_side(of_release=False), is_general=True),
    Rule("SB932", _one_side(of_release=True), is_general=True),
)

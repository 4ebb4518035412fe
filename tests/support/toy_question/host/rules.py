"""The rule of the toy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.toy.records import TOY

from samebits.findings.rule import Rule, Sighting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case


def _other_sum(case: Case) -> Iterator[Sighting]:
    answer, stack = TOY.in_row(case.answers), case.capture.cell.stack
    if answer is not None and answer.standings.get(stack) == "diverged":
        yield Sighting("sum", (f"the sum is {answer.jobs[stack].own:.6g}",))


RULES = (Rule("SB999", _other_sum),)

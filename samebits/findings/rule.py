"""Rules: the code of a finding, and the function that recognises the defect in a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from samebits.base.finding_pages import finding_page
from samebits.findings.case import Case
from samebits.records.comparison import CellResult
from samebits.records.finding import RuleText


class Sighting(NamedTuple):
    """One place where a defect was seen, and the evidence, one line each."""

    where: str
    evidence: tuple[str, ...]
    saver: str = ""
    """The stack that saves, if it is about what a save writes."""
    raises: str = ""
    """The stack that raises, if the check answers on the other side."""
    of_reference: bool = False
    """True if the reference has the defect: the comparison of both sides shows it at the candidate."""
    of_prompts: tuple[str, ...] | None = None
    """The prompts whose numbers it may explain, such as the padded ones; None for all, () for none."""
    follows: frozenset[str] = frozenset()
    """Defects of which it is a consequence, so that it is no finding beside one of them."""


RAISED: frozenset[str] = frozenset({"raised"})
"""What a rule explains that recognises the exception of a failed cell."""
UNSTABLE: frozenset[str] = frozenset({"unstable"})
"""What a rule explains that finds numbers which differ from run to run."""
STATE: frozenset[str] = frozenset({"state"})
"""What a rule explains that finds what a call leaves behind, so that the next one computes other numbers."""
COMPUTED: frozenset[str] = frozenset({"hidden_states", "logits", "outputs", "decode", "greedy"})


Check = Callable[["Case"], Iterator[Sighting]]
"""Yields the places of a cell where it shows a defect."""


class Rule(NamedTuple):
    """The check for a named defect."""

    code: str
    """``SB101``, the name of its page in docs/findings/."""
    check: Check
    """Yields only where the evidence leaves no doubt."""
    explains: frozenset[str] = frozenset()
    """The signals whose difference it explains, :data:`RAISED` or :data:`UNSTABLE`; nothing for a
    defect beside the verdict, such as one of saving, of a tokenizer or of training."""
    faulty: Callable[[CellResult], str] | None = None
    """Returns the stack that has the defect, where another one may show it; None: the one that shows it."""
    is_general: bool = False
    """True if it names any exception, so that a rule for the exception says more."""

    @property
    def text(self) -> RuleText:
        """What its page says."""
        return _text(self.code)


@cache
def _text(code: str) -> RuleText:
    page = finding_page(code)._asdict()
    return RuleText.model_validate({field: page[field] for field in RuleText.model_fields})


def raised(type_name: str, pattern: str) -> Check:
    """Return a check for an exception of these types (``A|B``) whose message matches."""

    def check(case: Case) -> Iterator[Sighting]:
        if case.raised(type_name, pattern):
            yield Sighting(case.raised_at(), case.exception_lines())

    return check


def of_exception(code: str, type_name: str, pattern: str) -> Rule:
    """Return the rule that is nothing but :func:`raised`."""
    return Rule(code, raised(type_name, pattern), explains=RAISED)

"""The answer about a model: what changed, since when, which side is wrong, and what to do.

Facts come from the records of a report; each sentence is made here once, as plain text, for the
terminal, report.md, report.html, JUnit, GitHub and issues.
"""

from samebits.reports.answer.of_model import (
    WORST_FIRST,
    Answer,
    answer,
    answers,
    is_quiet,
    kind_of,
    of_cell,
    only_rounding,
    worst_first,
)
from samebits.reports.answer.remedy import nothing
from samebits.reports.answer.result import in_one_release, passing, result, same
from samebits.reports.answer.sentences import first_sentences
from samebits.reports.answer.side import Side, faults, side

__all__ = [
    "WORST_FIRST",
    "Answer",
    "Side",
    "answer",
    "answers",
    "faults",
    "first_sentences",
    "in_one_release",
    "is_quiet",
    "kind_of",
    "nothing",
    "of_cell",
    "only_rounding",
    "passing",
    "result",
    "same",
    "side",
    "worst_first",
]

"""Both sides of a cell, for the rules: what its tokenizer and the reference's make of texts."""

from __future__ import annotations

from functools import lru_cache

from samebits.findings.case import Case
from samebits.questions.texts.compare import comparisons
from samebits.questions.texts.records import TEXTS, OperationComparison, Outcomes, TextsSignal


def texts_pair(case: Case) -> tuple[TextsSignal, TextsSignal] | None:
    """Return what was observed of the reference and of the cell; None if one was not observed."""
    return TEXTS.on_both(case.reference, case.capture)


def corpora(case: Case) -> tuple[Outcomes, Outcomes] | None:
    """Return what both make of the corpus; None if one was not observed."""
    observed = [side.corpus for side in texts_pair(case) or () if side.corpus is not None]
    return (observed[0], observed[1]) if len(observed) == 2 else None


@lru_cache(maxsize=1)
def compared(case: Case) -> tuple[OperationComparison, ...]:
    """Return all operations on both sides, which one rule after the other asks for."""
    return tuple(TEXTS.of_both(case.reference, case.capture, comparisons))

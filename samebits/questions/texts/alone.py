"""The verdict on a folder that holds a tokenizer and no model: that of the ids of its texts and conversations."""

from __future__ import annotations

from collections.abc import Mapping

from samebits.questions.texts.compare import BARE, CHAT_IDS, ENCODE, TEXT, position_in_words
from samebits.questions.texts.records import TEXTS, OperationComparison
from samebits.records.comparison import CellResult, Difference, SignalComparison
from samebits.records.ids import Verdict
from samebits.records.question import Answer
from samebits.text.markdown import clip
from samebits.text.numbers import count, plural

_JUDGED = {ENCODE: "text", BARE: "text", TEXT: "conversation", CHAT_IDS: "conversation"}
"""Operations whose results a model is fed -> what their cases are. What else differs is a finding."""
_MAX_SHOWN = 30
"""Characters of the first ids that differ, on each side."""


def alone(result: CellResult, answers: Mapping[str, Answer]) -> CellResult:
    """Return a cell, of a folder without a model judged by its texts; unchanged if none were compared."""
    if result.judged is not Verdict.NOT_OBSERVED or result.rest is not None:
        return result
    row = TEXTS.in_row(answers)
    report = row.stacks.get(result.cell.stack) if row is not None else None
    if report is None or result.reference is None or report.reference != result.reference.stack:
        return result
    judged = [o for o in report.operations if o.operation in _JUDGED]
    n_compared = {o.operation: o.n_compared for o in judged}
    if not n_compared.get(ENCODE):
        return result
    differing = next((o for o in judged if o.n_differ), None)
    signal = SignalComparison(
        signal=TEXTS.name,
        outcome="identical" if differing is None else "differs",
        n_items=sum(n_compared.values()),
        n_differ=sum(o.n_differ for o in judged),
    )
    verdict = Verdict.IDENTICAL if differing is None else Verdict.DIVERGED
    update: dict[str, object] = {
        "verdict": verdict,
        "judged": verdict,
        "signals": (*result.signals, signal),
    }
    if differing is None or differing.first is None:
        chats = n_compared.get(TEXT, 0)
        also = f" and {plural(chats, 'conversation')}" if chats else ""
        words = f"a tokenizer without a model: the same ids for {plural(n_compared[ENCODE], 'text')}{also}"
        return result.model_copy(update=update | {"headline": words})
    words = _difference(differing)
    update |= {
        "headline": words,
        "figure": f"{count(differing.n_differ)} of {plural(differing.n_compared, _JUDGED[differing.operation])}",
        "first": Difference(signal=TEXTS.name, item=differing.first.case, what=words),
    }
    return result.model_copy(update=update)


def _difference(differing: OperationComparison) -> str:
    """Return for how many texts the tokenizer gives something else, and the first of them."""
    first = differing.first
    assert first is not None
    cases = plural(differing.n_compared, _JUDGED[differing.operation])
    what = "renders other text" if differing.operation == TEXT else "gives other ids"
    return (
        f"the tokenizer {what} for {count(differing.n_differ)} of {cases}, "
        f"first {position_in_words(first)}: "
        f"{clip(first.reference, _MAX_SHOWN)} \N{RIGHTWARDS ARROW} {clip(first.candidate, _MAX_SHOWN)}"
    )

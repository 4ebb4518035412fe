"""What is asked of a cell's tokenizer, and what a row's tokenizers say."""

from __future__ import annotations

from collections.abc import Mapping

from samebits.jobs.records import Options
from samebits.matrix.spec import ModelSpec
from samebits.questions.texts.compare import comparisons, texts_of
from samebits.questions.texts.records import TEXTS, TextsOfRow
from samebits.records.capture import Capture
from samebits.records.comparison import FactChange
from samebits.records.ids import CellId


def options(_cell: CellId, model: ModelSpec) -> Options:
    """Return how a tokenizer is asked, which is the same for every model that has one."""
    return Options(large=model.large)


def of_captures(captures: Mapping[str, Capture], reference: str) -> TextsOfRow | None:
    """Return what each stack's tokenizer makes of the texts, compared with the reference's."""
    reports = texts_of(TEXTS.by_stack(captures), reference)
    return TextsOfRow(stacks=reports) if reports else None


def changes(reference: Capture, candidate: Capture) -> dict[str, tuple[FactChange, ...]]:
    """Return the first difference of each operation, among what changed of the tokenizer."""
    pair = TEXTS.on_both(reference, candidate)
    if pair is None:
        return {}
    changed = (
        FactChange(
            what=f"{comparison.operation} · {first.case}",
            reference=first.reference,
            candidate=first.candidate,
        )
        for comparison in comparisons(*pair)
        if (first := comparison.first) is not None
    )
    return {"tokenizer": tuple(changed)}

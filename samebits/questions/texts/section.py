"""Tokenizers of the models: where the releases differ, and all details of one model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samebits.questions.differing import (
    NOT_OBSERVED,
    differing_lines,
    fact_lines,
    first_lines,
    once_for_models,
)
from samebits.questions.texts.compare import GROUPS, position_in_words
from samebits.questions.texts.records import TextsReport, reports_of
from samebits.records.report import Report, Row
from samebits.records.tokenizer import TokenizerSignal
from samebits.text.blocks import heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.numbers import plural

TITLE = "Tokenizers"

_MAX_DIFFERENCES = 40
"""Operations that the page of a model shows."""

Facts = dict[str, str]
"""Property of a tokenizer -> its value."""


def tokenizers(report: Report) -> Markdown:
    """Return what differs between releases, models with equal lines joined; may be empty."""
    models = _models(report.rows)
    if not models:
        return EMPTY
    stacks = [stack.id for stack in report.stacks]
    rows = once_for_models(
        {model: differing_lines(_lines(row, stacks)) for model, row in models.items()}
    )
    intro = fill(
        "{} with a tokenizer. It does not affect the verdict; only the input ids do.",
        plural(len(models), "model"),
    )
    comparison = (
        table(["", *stacks, "models"], rows)
        if rows
        else prose("The tokenizer behaves the same in all releases.")
    )
    return page([heading(2, TITLE), intro, comparison])


def tokenizers_of(rows: list[Row], report: Report) -> Markdown:
    """Return all observations of one model's tokenizer, for its own page."""
    row = next(iter(_models(rows).values()), None)
    if row is None:
        return EMPTY
    stacks = [stack.id for stack in report.stacks if stack.id in row.tokenizers]
    lines = ([prose(what), *map(code, answers)] for what, *answers in _lines(row, stacks))
    return page([heading(2, "Tokenizer"), table(["", *stacks], lines), _differences(row)])


def _differences(row: Row) -> Markdown:
    """Return the first difference of each operation in each stack."""
    reports = reports_of(row)
    lines = [
        [
            prose(stack),
            prose(operation.operation),
            prose(f"{operation.n_differ} of {operation.n_compared}"),
            prose(position_in_words(operation.first)),
            code(operation.first.reference),
            code(operation.first.candidate),
        ]
        for stack, texts in reports.items()
        for operation in texts.operations
        if operation.first is not None
    ]
    if not lines:
        return EMPTY
    reference = next(iter(reports.values())).reference
    headers = ["environment", "operation", "differ", "first", reference, "this environment"]
    return first_lines(headers, lines, _MAX_DIFFERENCES)


def tokenizers_differ(rows: Iterable[Row]) -> bool:
    """Return True if two releases differ in any property of a tokenizer."""
    return any(differing_lines(_lines(row, list(row.tokenizers))) for row in _models(rows).values())


def _models(rows: Iterable[Row]) -> dict[str, Row]:
    """Return model -> its first row that has tokenizers."""
    models: dict[str, Row] = {}
    for row in rows:
        if row.tokenizers:
            models.setdefault(row.model, row)
    return models


def _lines(row: Row, stacks: list[str]) -> list[list[str]]:
    first = next(iter(row.tokenizers.values()))
    facts_by_stack = {
        stack: _facts(signal, first) | _text_facts(stack, row)
        for stack, signal in row.tokenizers.items()
    }
    return [*fact_lines(facts_by_stack, stacks), *_attributes(row, stacks)]


def _attributes(row: Row, stacks: list[str]) -> list[list[str]]:
    """Return the attributes that differ between releases."""
    attributes = {stack: signal.attributes for stack, signal in row.tokenizers.items()}
    return [
        [f"attribute {name}", *values]
        for name, *values in fact_lines(attributes, stacks)
        if len(set(values) - {NOT_OBSERVED}) > 1
    ]


def _facts(signal: TokenizerSignal, first: TokenizerSignal) -> Facts:
    """Return the properties of a tokenizer; ids only as equal to the oldest's or not."""
    missing = [name for name, is_present in signal.methods.items() if not is_present]
    same_ids = _plain_ids(signal) == _plain_ids(first)
    facts = {
        "class": signal.class_name,
        "saved as": signal.saved_class or "no class",
        "pads on the": signal.padding_side,
        "adds": signal.adds,
        "ids without special tokens": "same as in the oldest" if same_ids else "different",
        "a call returns": ", ".join(signal.gives),
        "decode of a batch": signal.batch.type_name,
        "removed methods": str(len(missing)),
    }
    return facts | ({"apply_chat_template": signal.chat.type_name} if signal.chat else {})


def _text_facts(stack: str, row: Row) -> Facts:
    """Return how much of each group of operations on the corpus is the same as in the reference."""
    reports = reports_of(row)
    if not reports:
        return {}
    reference = next(iter(reports.values())).reference
    if stack == reference:
        return {f"corpus: {group}": f"same as in {reference}" for group in _groups(reports)}
    texts = reports.get(stack)
    if texts is None:
        return {}
    return {f"corpus: {group}": _group_fact(group, texts) for group in _groups(reports)}


def _groups(reports: Mapping[str, TextsReport]) -> list[str]:
    """Return the groups that a stack was compared in."""
    operations = {o.operation for texts in reports.values() for o in texts.operations}
    return [group for group, names in GROUPS.items() if operations.intersection(names)]


def _group_fact(group: str, texts: TextsReport) -> str:
    members = [o for o in texts.operations if o.operation in GROUPS[group]]
    n_compared, n_differ = sum(o.n_compared for o in members), sum(o.n_differ for o in members)
    if not n_compared:
        return NOT_OBSERVED
    if not n_differ:
        return f"same as in {texts.reference}"
    return f"{n_differ} of {n_compared} differ"


def _plain_ids(signal: TokenizerSignal) -> dict[str, tuple[int, ...]]:
    return {name: text.bare for name, text in signal.texts.items()}

"""Tokenizers of the models: where the releases differ, and all details of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.text.blocks import codes, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.records.report import Report, Row
    from samebits.records.tokenizer import TokenizerSignal

TITLE = "Tokenizers"
MAX_MODELS = 6
"""Limit for the models that a line of report.md names."""
NOT_OBSERVED = "\N{EN DASH}"

Facts = dict[str, str]
"""Property of a tokenizer -> its value."""


def tokenizers(report: Report) -> Markdown:
    """Return what differs between releases, models with equal lines joined; may be empty."""
    models = _models(report.rows)
    if not models:
        return EMPTY
    stacks = [stack.id for stack in report.stacks]
    lines: dict[tuple[str, ...], list[str]] = {}
    for model, signals in models.items():
        for what, *answers in _lines(signals, stacks):
            if len(set(answers) - {NOT_OBSERVED}) > 1:
                lines.setdefault((what, *answers), []).append(model)
    rows = [
        [
            prose(what),
            *(code(answer) if answer != NOT_OBSERVED else prose(answer) for answer in answers),
            codes(names, MAX_MODELS),
        ]
        for (what, *answers), names in lines.items()
    ]
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
    signals = next(iter(_models(rows).values()), None)
    if signals is None:
        return EMPTY
    stacks = [stack.id for stack in report.stacks if stack.id in signals]
    lines = ([prose(what), *map(code, answers)] for what, *answers in _lines(signals, stacks))
    return page([heading(2, "Tokenizer"), table(["", *stacks], lines)])


def tokenizers_differ(rows: Iterable[Row]) -> bool:
    """Return True if two releases differ in any property of a tokenizer."""
    return any(
        len(set(answers)) > 1
        for signals in _models(rows).values()
        for _, *answers in _lines(signals, list(signals))
    )


def _models(rows: Iterable[Row]) -> dict[str, Mapping[str, TokenizerSignal]]:
    """Return model -> stack -> tokenizer, from each model's first row that has them."""
    models: dict[str, Mapping[str, TokenizerSignal]] = {}
    for row in rows:
        if row.tokenizers:
            models.setdefault(row.model, row.tokenizers)
    return models


def _lines(signals: Mapping[str, TokenizerSignal], stacks: list[str]) -> list[list[str]]:
    first = next(iter(signals.values()))
    facts_by_stack = {stack: _facts(signal, first) for stack, signal in signals.items()}
    names = dict.fromkeys(name for facts in facts_by_stack.values() for name in facts)
    return [
        [name, *(facts_by_stack.get(stack, {}).get(name, NOT_OBSERVED) for stack in stacks)]
        for name in names
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
        "decode of a batch": signal.batch.said,
        "removed methods": str(len(missing)),
    }
    return facts | ({"apply_chat_template": signal.chat.said} if signal.chat else {})


def _plain_ids(signal: TokenizerSignal) -> dict[str, tuple[int, ...]]:
    return {name: text.bare for name, text in signal.texts.items()}

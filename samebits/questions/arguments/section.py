"""Arguments of forward and generate() whose effect differs, once for all models in which the same happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.arguments.records import ARGUMENTS
from samebits.questions.arguments.rules import call_of, in_words
from samebits.text.blocks import codes, heading, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.questions.arguments.records import ArgumentsOfRow, Method
    from samebits.records.report import Report, Row

TITLE = "Arguments of forward and generate()"
_MAX_MODELS = 6
Line = tuple[str, tuple[str, ...]]
"""A call with an argument, and its effect in each environment."""


def of_run(report: Report) -> Markdown:
    """Return the arguments whose effect differs in some model; empty if none does."""
    models = ARGUMENTS.by_model(report.rows)
    stacks = [stack.id for stack in report.stacks]
    pairs = ((model, line) for model, row in models.items() for line in _lines(row, stacks))
    rows = [
        [code(line[0]), *map(prose, line[1]), codes([model for model, _ in group], _MAX_MODELS)]
        for line, group in grouped(pairs, lambda pair: pair[1]).items()
    ]
    if not rows:
        return EMPTY
    intro = fill(
        "{}: forward, and generate() where the model has it, are called with one argument more at a time. Listed is what the reference reads, and an environment "
        "ignores or refuses. It does not affect the verdict.",
        plural(len(models), "model"),
    )
    return page([heading(2, TITLE), intro, table(["argument", *stacks, "models"], rows)])


def of_model(rows: list[Row], report: Report) -> Markdown:
    """Return the arguments whose effect differs in one model; empty if none does."""
    row = next(iter(ARGUMENTS.by_model(rows).values()), None)
    stacks = [stack.id for stack in report.stacks if row is not None and stack.id in row.stacks]
    lines = _lines(row, stacks) if row is not None else []
    if not lines:
        return EMPTY
    cells = [[code(argument), *map(prose, effects)] for argument, effects in lines]
    return page([heading(2, TITLE), table(["argument", *stacks], cells)])


def arguments_differ(rows: Iterable[Row]) -> bool:
    """Return True if an argument has an effect in some environments only."""
    return any(
        each.differences
        for row in ARGUMENTS.by_model(rows).values()
        for each in row.compared.values()
    )


def _lines(row: ArgumentsOfRow, stacks: list[str]) -> list[Line]:
    named = {(d.method, d.argument) for c in row.compared.values() for d in c.differences}
    return [
        (call_of(method, name), tuple(_effect(row, method, name, stack) for stack in stacks))
        for method, name in sorted(named)
    ]


def _effect(row: ArgumentsOfRow, method: Method, name: str, stack: str) -> str:
    signal = row.stacks.get(stack)
    effects = signal.of(method) if signal is not None else {}
    return in_words(effects[name], method) if name in effects else ""

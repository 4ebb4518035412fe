"""Which attention was asked for, resolved and ran: per row, where the stacks do not agree first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samebits.reports.blocks import details, folded, heading, page, table
from samebits.reports.figures import plural
from samebits.reports.names import numbered
from samebits.reports.outcomes import row_name
from samebits.reports.text import EMPTY, Markdown, code, join, prose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.capture import AttentionCall, AttentionSignal
    from samebits.document import Report, Row

HEADERS = [
    "row",
    "stacks",
    "prompts",
    "layers",
    "attention",
    "function",
    "enable_gqa",
    "is_causal",
    "mask",
    "ATen kernel",
]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What ran, and everywhere where just that ran."""

    rows: tuple[str, ...]
    stacks: tuple[str, ...]
    prompts: tuple[str, ...]
    layers: tuple[str, ...]
    facts: tuple[str, ...]
    """The columns from ``attention`` on."""


def attention_kernels(report: Report) -> Markdown:
    """Return one table of rows whose stacks do not agree, and a folded one of the others."""
    rows = [row for row in report.rows if row.attention]
    if not rows:
        return EMPTY
    changed = [row for row in rows if _changed(row)]
    same = [row for row in rows if not _changed(row)]
    return page([heading(2, "Attention kernels"), _disagreeing(changed), _agreeing(same)])


def _disagreeing(rows: list[Row]) -> Markdown:
    if not rows:
        return prose("In every row all stacks ran the same attention.")
    return folded(f"{plural(len(rows), 'row')} where stacks do not agree", _table(rows), longest=40)


def _agreeing(rows: list[Row]) -> Markdown:
    if not rows:
        return EMPTY
    return details(f"{plural(len(rows), 'row')} where all stacks agree", _table(rows))


def _changed(row: Row) -> bool:
    return len({tuple(_ran_on(row, stack)) for stack in row.attention}) > 1


def _ran_on(row: Row, stack: str) -> list[Ran]:
    """Return what ran on one stack, without the stack's name, so that stacks compare."""
    return [replace(ran, stacks=()) for ran in _stack_lines(row, stack)]


def _table(rows: Iterable[Row]) -> Markdown:
    lines = [line for row in rows for stack in row.attention for line in _stack_lines(row, stack)]
    for field in ("layers", "prompts", "stacks", "rows"):
        lines = _joined(lines, field)
    return table(HEADERS, map(_cells, lines))


def _stack_lines(row: Row, stack: str) -> list[Ran]:
    signal = row.attention[stack]
    start = Ran(rows=(row_name(row),), stacks=(stack,), prompts=(), layers=(), facts=())
    if not signal.calls:
        return [replace(start, facts=(_resolution(signal), "not observed", "", "", "", ""))]
    return [
        replace(start, prompts=(prompt,), layers=(call.module,), facts=_facts(signal, call))
        for prompt, calls in signal.calls.items()
        for call in calls
    ]


def _resolution(signal: AttentionSignal) -> str:
    """Return what was asked for, and what that became if it became something else."""
    if signal.resolved == signal.requested:
        return signal.requested
    return f"{signal.requested} → {signal.resolved or 'unknown'}"


def _facts(signal: AttentionSignal, call: AttentionCall) -> tuple[str, ...]:
    """Return what makes two calls the same; line numbers move with every release and do not."""
    sdpa = call.sdpa
    arguments = (
        ("", "", "")
        if sdpa is None
        else (str(sdpa.enable_gqa), str(sdpa.is_causal), sdpa.mask or "none")
    )
    function = ".".join(call.function.split(".")[-2:])
    return _resolution(signal), function, *arguments, ", ".join(call.aten)


def _joined(lines: Iterable[Ran], field: str) -> list[Ran]:
    """Return the lines with those joined that are equal but for ``field``."""
    groups: dict[Ran, dict[str, None]] = {}
    for line in lines:
        rest = replace(line, **{field: ()})
        groups.setdefault(rest, {}).update(dict.fromkeys(getattr(line, field)))
    return [replace(rest, **{field: tuple(values)}) for rest, values in groups.items()]


def _cells(ran: Ran) -> list[str]:
    return [
        join(ran.rows),
        ", ".join(ran.stacks),
        ", ".join(ran.prompts),
        join(map(code, numbered(ran.layers))),
        *map(_fact, ran.facts),
    ]


def _fact(fact: str) -> Markdown:
    return code(fact) if fact and not fact.replace(" ", "").isalpha() else prose(fact)

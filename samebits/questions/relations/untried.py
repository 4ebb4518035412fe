"""Relations that could not be tried at all, or not in float64, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from samebits.questions.relations.lines import RELATIONS, Line
from samebits.questions.relations.records import signals_of
from samebits.records.report import Row
from samebits.text.blocks import codes, details, table
from samebits.text.lists import joined
from samebits.text.markdown import EMPTY, Markdown, fill
from samebits.text.numbers import count

MAX_MODELS = 6
"""Limit for the models that a line names."""

MAX_REASONS = 60
"""Limit for the reasons that a table shows; report.json has them all."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Relations that could not be tried, with everything for which exactly this is the reason."""

    relations: tuple[str, ...]
    models: tuple[str, ...]
    stacks: tuple[str, ...]
    reasons: tuple[str, ...]
    """Exactly one reason, which several relations may share."""
    extent: tuple[str, ...]
    """Whether all of a relation or some shapes are left out; empty where float64 is missing."""


def left_out(lines: list[Line]) -> Markdown:
    """Return the relations that have no meaning or were refused on some stack, and why."""
    entries = [
        LeftOut(
            relations=(line.name,),
            models=(line.row.model,),
            stacks=(stack,),
            reasons=(reason,),
            extent=("some shapes" if stack in line.cases else "all shapes",),
        )
        for line in lines
        for stack, reasons in line.reasons.items()
        for reason in reasons
    ]
    headers = ["reason", "left out", "relations", "models", "environments"]
    return _reason_table("Relations that could not be tried, and why", headers, entries)


def not_promoted(rows: Iterable[Row]) -> Markdown:
    """Return where there are no figures in float64, and why."""
    entries = [
        LeftOut(relations=(), models=(row.model,), stacks=(stack,), reasons=(reason,), extent=())
        for row in rows
        for stack, signal in signals_of(row).items()
        if (reason := signal.no_float64)
    ]
    headers = ["reason", "models", "environments"]
    return _reason_table("Cells without float64 figures, and why", headers, entries)


def _reason_table(title: str, headers: list[str], entries: list[LeftOut]) -> Markdown:
    """Return a line for each reason, with everything for which it is the reason."""
    entries = joined(entries, "stacks", "relations", "models")
    if not entries:
        return EMPTY
    rest = len(entries) - MAX_REASONS
    more = fill("… and {} more in report.json.", count(rest)) if rest > 0 else EMPTY
    return details(title, table(headers, map(_row, entries[:MAX_REASONS])), more)


def _row(entry: LeftOut) -> list[str]:
    is_every = len(entry.relations) == len(RELATIONS)
    relations = ["all" if is_every else "; ".join(entry.relations)] if entry.relations else []
    models = codes(entry.models, MAX_MODELS)
    return [*entry.reasons, *entry.extent, *relations, models, ", ".join(entry.stacks)]

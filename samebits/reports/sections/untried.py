"""What of the relations could not be tried, or not in float64, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samebits.reports.sections.relations_lines import RELATIONS, Line
from samebits.text.blocks import codes, details, table
from samebits.text.markdown import EMPTY, Markdown, fill
from samebits.text.numbers import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.report import Row

MOST_MODELS = 6
"""Models that a line names."""

MOST_REASONS = 60
"""Reasons that a table shows; report.json has them all."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """Relations that could not be tried, and everywhere where just that is the reason."""

    relations: tuple[str, ...]
    models: tuple[str, ...]
    stacks: tuple[str, ...]
    reasons: tuple[str, ...]
    """One, which several may share."""
    extent: tuple[str, ...]
    """Whether all of a relation or some shapes are left out; nothing where it is float64."""


def left_out(found: list[Line]) -> Markdown:
    """Return the relations that have no meaning or were refused somewhere, and why."""
    left = [
        Left(
            relations=(line.name,),
            models=(line.row.model,),
            stacks=(stack,),
            reasons=(reason,),
            extent=("some shapes" if stack in line.cases else "all of it",),
        )
        for line in found
        for stack, reasons in line.reasons.items()
        for reason in reasons
    ]
    headers = ["reason", "left out", "relations", "models", "stacks"]
    return _folded("Relations that could not be tried, and why", headers, left)


def not_promoted(rows: Iterable[Row]) -> Markdown:
    """Return where there are no figures in float64, and why."""
    left = [
        Left(relations=(), models=(row.model,), stacks=(stack,), reasons=(why,), extent=())
        for row in rows
        for stack, signal in row.invariants.items()
        if (why := signal.no_float64)
    ]
    headers = ["reason", "models", "stacks"]
    return _folded("Cells without figures in float64, and why", headers, left)


def _folded(title: str, headers: list[str], left: list[Left]) -> Markdown:
    """Return a line for each reason, with everywhere where it is the reason."""
    for field in ("stacks", "relations", "models"):
        left = _joined(left, field)
    if not left:
        return EMPTY
    rest = len(left) - MOST_REASONS
    more = fill("… and {} more in report.json.", count(rest)) if rest > 0 else EMPTY
    return details(title, table(headers, map(_left, left[:MOST_REASONS])), more)


def _left(left: Left) -> list[str]:
    every = len(left.relations) == len(RELATIONS)
    relations = ["all" if every else "; ".join(left.relations)] if left.relations else []
    models = codes(left.models, MOST_MODELS)
    return [*left.reasons, *left.extent, *relations, models, ", ".join(left.stacks)]


def _joined(left: Iterable[Left], field: str) -> list[Left]:
    """Return the entries with those joined that are equal but for ``field``."""
    groups: dict[Left, dict[str, None]] = {}
    for one in left:
        rest = replace(one, **{field: ()})
        groups.setdefault(rest, {}).update(dict.fromkeys(getattr(one, field)))
    return [replace(rest, **{field: tuple(values)}) for rest, values in groups.items()]

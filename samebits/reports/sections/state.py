"""State left behind: models whose next forward depends on those before it."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.records.report import Report, Row
from samebits.records.state import StateSignal
from samebits.text.blocks import bullets, codes, heading, link, page, slug, table
from samebits.text.lists import group_equal
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import first_of, size

TITLE = "One call changes the next"
INTRO = (
    "After all prompts and generate() the first prompt runs once more. In these cells it gives "
    "different bytes than the first time. Where the reference gives the same bytes both times, "
    "`state` differs, which fails the run."
)
MAX_MODELS = 6
"""Limit for the models that a line names."""


def state_left(report: Report) -> Markdown:
    """Return the section; empty if no cell left anything behind."""
    rows = [row for row in report.rows if row.state]
    if not rows:
        return EMPTY
    return page([heading(2, TITLE), Markdown(INTRO), _table(rows, linked=True)])


def state_of(rows: Iterable[Row]) -> Markdown:
    """Return the section of a model's page; empty if no cell left anything behind."""
    rows = [row for row in rows if row.state]
    if not rows:
        return EMPTY
    return page([heading(2, TITLE), Markdown(INTRO), _table(rows, linked=False), _changes(rows)])


def left_line(report: Report) -> str:
    """Return the models that leave state behind, and their stacks; '' if there are none."""
    places: dict[str, dict[str, None]] = {}
    for row in report.rows:
        if row.state:
            places.setdefault(row.model, {}).update(dict.fromkeys(row.state))
    if not places:
        return ""
    texts = [f"{model} in {', '.join(stacks)}" for model, stacks in places.items()]
    named = "; ".join(first_of(texts, MAX_MODELS, "model"))
    return f"A call leaves something behind that changes the next one: {named}"


def _table(rows: list[Row], *, linked: bool) -> Markdown:
    headers = ["model · variant", "environments", "prompt", "left behind", "outputs", "max abs"]
    lines = [
        [_name(row, linked=linked), ", ".join(stacks), code(state.prompt), *_figures(state)]
        for row in rows
        for stacks, state in group_equal(row.state)
    ]
    return table(headers, lines, right=("max abs",))


def _name(row: Row, *, linked: bool) -> Markdown:
    name = f"{row.model} · {row.variant}"
    return link(name, f"{page_path(row.model)}#{slug(TITLE)}") if linked else prose(name)


def _figures(state: StateSignal) -> list[str]:
    distance = state.distance
    outputs = codes([output or "the only one" for output in state.outputs])
    return [state.in_words, outputs, size(distance.max_abs) if distance is not None else ""]


def _changes(rows: list[Row]) -> Markdown:
    """Return everything that changed, which is more than what makes the difference."""
    return bullets(
        fill("{}, {}: changed since the first prompt: {}.", row.variant, ", ".join(stacks), names)
        for row in rows
        for stacks, state in group_equal(row.state)
        if (names := join(code(change.name) for change in state.changes))
    )

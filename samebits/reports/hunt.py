"""The hunt for the cause of a difference: suspect by suspect, ruled in or ruled out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.blocks import page, table, titled
from samebits.reports.text import EMPTY, Markdown, fill, join, prose

if TYPE_CHECKING:
    from samebits.comparison import CellResult
    from samebits.finding import Status, Step

_MEANING: dict[Status, str] = {
    "follows": "it differs, and so does something that it is computed from",
    "open": "no observation tells whether it matters",
}


def hunt(cell: CellResult) -> Markdown:
    """Return the table of a cell's steps, in the order of data flow; empty without steps."""
    if not cell.steps:
        return EMPTY
    rows = [(_suspect(step), _status(step), prose(step.what)) for step in cell.steps]
    drawn = table(("suspect", "verdict", "what was compared and found"), rows)
    return page([titled("The hunt, in the order in which data flows"), drawn, _legend(cell)])


def _suspect(step: Step) -> Markdown:
    return fill("**{}**", step.suspect) if step.status == "ruled in" else prose(step.suspect)


def _status(step: Step) -> Markdown:
    return fill("**{}**", step.status) if step.status == "ruled in" else prose(step.status)


def _legend(cell: CellResult) -> Markdown:
    used = {step.status for step in cell.steps}
    told = [fill("{}: {}", word, means) for word, means in _MEANING.items() if word in used]
    return fill("{}.", join(told, "; ")) if told else EMPTY

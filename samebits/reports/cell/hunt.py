"""The hunt for the cause of a difference: suspect by suspect, ruled in or ruled out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.text.blocks import page, table, titled
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.numbers import rounded_ulp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samebits.records.comparison import CellResult
    from samebits.records.finding import Status, Step

_MEANING: dict[Status, str] = {
    "follows": "it differs, and so does something that it is computed from",
    "open": "no observation tells whether it matters",
}


def hunt(cells: Sequence[CellResult], where: Callable[[list[CellResult]], str]) -> Markdown:
    """Return the table of the cells' steps, in the order of data flow; empty without steps.

    What is said of some of the cells alone says of which, as ``where`` names them.
    """
    told: dict[str, dict[Step, list[CellResult]]] = {}
    for cell in cells:
        for step in cell.steps:
            told.setdefault(step.suspect, {}).setdefault(step, []).append(cell)
    if not told:
        return EMPTY
    rows = [
        (
            _suspect(step),
            "" if len(on) == len(cells) else where(on),
            _status(step),
            prose(rounded_ulp(step.what)),
        )
        for steps in told.values()
        for step, on in steps.items()
    ]
    drawn = table(("suspect", "only on", "verdict", "what was compared and found"), rows)
    used = {step.status for steps in told.values() for step in steps}
    return page([titled("The hunt, in the order in which data flows"), drawn, _legend(used)])


def _suspect(step: Step) -> Markdown:
    return fill("**{}**", step.suspect) if step.status == "ruled in" else prose(step.suspect)


def _status(step: Step) -> Markdown:
    return fill("**{}**", step.status) if step.status == "ruled in" else prose(step.status)


def _legend(used: set[Status]) -> Markdown:
    told = [fill("{}: {}", word, means) for word, means in _MEANING.items() if word in used]
    return fill("{}.", join(told, "; ")) if told else EMPTY

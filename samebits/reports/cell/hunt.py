"""The hunt for the cause of a difference: one suspect after the other, ruled in or ruled out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from samebits.records.comparison import CellResult
from samebits.records.finding import Status, Step
from samebits.text.blocks import page, table, titled
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.numbers import rounded_ulp

_MEANING: dict[Status, str] = {
    "follows": "it differs, but so does something that it is computed from",
    "open": "it differs, and no observation shows whether this matters",
}


_QUIET: dict[Status, str] = {"ruled out": "Ruled out", "not observed": "Not observed"}
"""Statuses that report.json explains; a page only names the suspects."""


def hunt(cells: Sequence[CellResult], where: Callable[[list[CellResult]], str]) -> Markdown:
    """Return the table of the cells' steps, in the order of data flow; empty without steps.

    A step that holds only for some of the cells names them, as ``where`` puts it.
    """
    suspects: dict[str, dict[Step, list[CellResult]]] = {}
    for cell in cells:
        for step in cell.steps:
            suspects.setdefault(step.suspect, {}).setdefault(step, []).append(cell)
    if not suspects:
        return EMPTY
    rows = [
        (
            _marked(step, step.suspect),
            "" if len(step_cells) == len(cells) else where(step_cells),
            _marked(step, step.status),
            prose(rounded_ulp(step.what)),
        )
        for steps in suspects.values()
        for step, step_cells in steps.items()
        if step.status not in _QUIET
    ]
    quiet = [
        fill("{}: {}.", _QUIET[status], join(names))
        for status in _QUIET
        if (names := _with_status(suspects.values(), status))
    ]
    step_table = table(("candidate cause", "only on", "verdict", "result"), rows)
    statuses = {step.status for steps in suspects.values() for step in steps}
    return page(
        [
            titled("Root cause: candidate causes in the order of data flow"),
            step_table,
            _legend(statuses),
            *quiet,
        ]
    )


def _with_status(suspects: Iterable[Iterable[Step]], status: Status) -> list[str]:
    """Return the suspects that have only this status."""
    return [
        next(iter(steps)).suspect
        for steps in map(list, suspects)
        if {step.status for step in steps} == {status}
    ]


def _marked(step: Step, text: str) -> Markdown:
    return fill("**{}**", text) if step.status == "ruled in" else prose(text)


def _legend(statuses: set[Status]) -> Markdown:
    meanings = [
        fill("{}: {}", word, meaning) for word, meaning in _MEANING.items() if word in statuses
    ]
    return fill("{}.", join(meanings, "; ")) if meanings else EMPTY

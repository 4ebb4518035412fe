"""How a verdict is shown: a word, and a class that gives it a shape and a colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.records.ids import Verdict
from samebits.reports.html.addresses import Addresses, cell_anchor, model_page
from samebits.reports.stories import cell_in_short, verdict_word

if TYPE_CHECKING:
    from samebits.records.comparison import CellResult

SEVERITY = (
    Verdict.FAILED,
    Verdict.DIVERGED,
    Verdict.UNSTABLE,
    Verdict.UNDECIDED,
    Verdict.NOT_FINISHED,
    Verdict.NOT_OBSERVED,
    Verdict.FIXED,
    Verdict.ROUNDING,
    Verdict.IDENTICAL,
    Verdict.REFERENCE,
    Verdict.ABSENT,
)
"""The verdicts, the most severe first: the order in which a column is sorted."""

MEANINGS = {
    Verdict.REFERENCE: "the stack that the others of its row are compared with",
    Verdict.IDENTICAL: "the same bits as the reference",
    Verdict.ROUNDING: "the same function, rounded differently",
    Verdict.DIVERGED: "another function",
    Verdict.UNDECIDED: "it differs, and nothing shows whether that is rounding",
    Verdict.UNSTABLE: "two runs of the same cell differ",
    Verdict.FAILED: "an exception",
    Verdict.NOT_FINISHED: "it ended at its limit of time or memory",
    Verdict.NOT_OBSERVED: "no forward was compared",
    Verdict.ABSENT: "the release does not know the architecture",
    Verdict.EXPECTED: "the matrix file expects the difference; its kind stands behind the comma",
    Verdict.FIXED: "the matrix file expects a difference that is gone",
}
"""Verdict -> what it means, for the legend."""


class State(NamedTuple):
    """One cell as a table shows it."""

    name: str
    """Class of its shape and colour."""
    word: str
    figure: str = ""
    link: str = ""
    """Link to what its model's page says about it; '' if that says no more."""
    short: str = ""
    """The most important line about it."""


def class_of(verdict: Verdict) -> str:
    """Return the class of a verdict's shape and colour."""
    return f"s-{verdict.value.replace(' ', '-')}"


def state(cell: CellResult, source: str, addresses: Addresses) -> State:
    """Return a cell as a table of the page ``source`` shows it."""
    link = ""
    if has_details(cell):
        link = addresses.page(source, model_page(cell.cell.model), cell_anchor(cell.cell))
    return State(name_of(cell), word_of(cell), cell.figure, link, cell_in_short(cell))


def name_of(cell: CellResult) -> str:
    """Return the classes of a cell: an expected difference looks as what it is, with a frame."""
    if cell.verdict is not Verdict.EXPECTED:
        return class_of(cell.verdict)
    return f"{class_of(cell.judged)} expected"


def word_of(cell: CellResult) -> str:
    """Return the verdict; for an expected difference also its kind."""
    if cell.verdict is Verdict.EXPECTED and cell.judged is not Verdict.EXPECTED:
        return f"{cell.verdict}, {cell.judged}"
    return verdict_word(cell)


def has_details(cell: CellResult) -> bool:
    """Return True if there is more to say about a cell than its verdict."""
    plain = (Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ABSENT)
    return cell.verdict not in plain or bool(cell.findings or cell.notes)

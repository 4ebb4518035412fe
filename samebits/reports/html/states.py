"""How a verdict is shown: a word, and a class that gives it a shape and a colour."""

from __future__ import annotations

from typing import NamedTuple

from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.reports.html.addresses import Addresses, cell_anchor, model_page
from samebits.reports.stories import QUIET, cell_in_short, verdict_word

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
    Verdict.REFERENCE: "the environment that the others of its row are compared with",
    Verdict.IDENTICAL: "the same bits as the reference",
    Verdict.ROUNDING: "the same function, rounded differently",
    Verdict.DIVERGED: "the behaviour changed: the difference stays in float64",
    Verdict.UNDECIDED: "it differs, and nothing shows whether that is rounding",
    Verdict.UNSTABLE: "two runs of the same cell differ",
    Verdict.FAILED: "an exception",
    Verdict.NOT_FINISHED: "it ended at its limit of time or memory",
    Verdict.NOT_OBSERVED: "no forward was compared",
    Verdict.ABSENT: "the release does not know the architecture",
    Verdict.EXPECTED: "a dashed frame: the difference is known, and listed in the matrix file",
    Verdict.FIXED: "the matrix file lists a difference that is gone",
}
"""Verdict -> what it means, for the legend."""


class State(NamedTuple):
    """One cell as a table shows it."""

    name: str
    """Class of its shape and colour."""
    word: str
    value: str = ""
    """Its number, such as ``7.9e-07``, which a table shows in place of the word."""
    what: str = ""
    """What the number is of, or the type of an exception."""
    link: str = ""
    """Link to what its model's page says about it; '' if that says no more."""
    short: str = ""
    """The most important line about it, and why the matrix file lists it."""
    note: str = ""
    """What its frame means, in words."""
    wrong: tuple[str, ...] = ()
    """Codes of the defects for which this side is wrong."""

    @property
    def classes(self) -> list[str]:
        """The classes of a cell of a table."""
        return [self.name, *(["expected"] if self.note else []), *(["wrong"] if self.wrong else [])]


def class_of(verdict: Verdict) -> str:
    """Return the class of a verdict's shape and colour."""
    return f"s-{verdict.value.replace(' ', '-')}"


def rank_of(cell: CellResult) -> int:
    """Return the place of a cell among the verdicts, the most severe first."""
    return _RANKS[cell.judged if cell.judged in _RANKS else cell.verdict]


_RANKS = {verdict: rank for rank, verdict in enumerate((*SEVERITY, Verdict.EXPECTED))}


def state(
    cell: CellResult, source: str, addresses: Addresses, wrong: tuple[str, ...] = ()
) -> State:
    """Return a cell as a table of the page ``source`` shows it."""
    link = ""
    if cell.verdict not in QUIET or wrong:
        link = addresses.page(source, model_page(cell.cell.model), cell_anchor(cell.cell))
    what, value = _figure(cell)
    is_expected = cell.verdict is Verdict.EXPECTED
    return State(
        class_of(cell.judged if is_expected else cell.verdict),
        _word(cell),
        value,
        what,
        link,
        "; known: ".join([cell_in_short(cell), *cell.expected]),
        "known" if is_expected else "",
        wrong,
    )


def _figure(cell: CellResult) -> tuple[str, str]:
    """Return what the number of a cell is of, and the number; of a failure the type, and no number."""
    if cell.failure is not None:
        return cell.failure.type.rpartition(".")[2], ""
    what, _, value = cell.figure.partition(" ")
    return (what, value) if cell.judged in _MEASURED else (cell.figure, "")


_MEASURED = frozenset({Verdict.ROUNDING, Verdict.DIVERGED, Verdict.UNDECIDED})


def _word(cell: CellResult) -> str:
    """Return the verdict; for an expected difference its kind, as its frame says that it is expected."""
    return str(cell.judged) if cell.verdict is Verdict.EXPECTED else verdict_word(cell)


def has_details(cell: CellResult) -> bool:
    """Return True if there is more to say about a cell than its verdict."""
    return cell.verdict not in QUIET or bool(cell.findings or cell.notes)


def details_anchor(cell: CellResult) -> str:
    """Return the id of what a model's page says about a cell; '' if it says no more than the verdict."""
    return cell_anchor(cell.cell) if has_details(cell) else ""

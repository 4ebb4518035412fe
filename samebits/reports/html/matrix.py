"""The matrix of models and releases, with what it can be filtered by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.html.addresses import HOME, Addresses, anchor, model_page
from samebits.reports.html.answers import Answers
from samebits.reports.html.states import SEVERITY, State, class_of, rank_of, state
from samebits.reports.stories import QUIET, is_quiet

NEW = "new"
"""Listed among the verdicts of a row with a difference that fails the run."""
SAME = "all identical"
"""Listed among the verdicts of a row without any difference."""

CHIPS = {
    Verdict.FAILED: ("fails", "fail"),
    Verdict.DIVERGED: ("differs", "differ"),
    Verdict.UNSTABLE: ("unstable", "unstable"),
    Verdict.UNDECIDED: ("not judged", "not judged"),
    Verdict.NOT_FINISHED: ("not finished", "not finished"),
    Verdict.NOT_OBSERVED: ("not observed", "not observed"),
    Verdict.FIXED: ("fixed", "fixed"),
    Verdict.ROUNDING: ("rounding", "rounding"),
}
"""Verdict -> words for one row and for several, the most severe first."""


class Named(NamedTuple):
    """A finding of a row."""

    code: str
    name: str
    link: str
    """Link to its text on the first page; '' if that does not have it."""
    explains: bool


class Line(NamedTuple):
    """One row of the matrix."""

    model: str
    link: str
    variant: str
    dtype: str
    attention: str
    group: str
    states: tuple[State | None, ...]
    """One for each stack; None if the matrix file or a filter leaves the cell out."""
    verdicts: tuple[str, ...]
    findings: tuple[Named, ...]
    """Those that explain a verdict first."""
    signals: tuple[str, ...]
    """Signals that differ from the reference in some cell."""
    moved: tuple[str, ...]
    """Stacks whose cell differs from the reference."""

    @property
    def is_same(self) -> bool:
        """True if no cell differs from the reference."""
        return SAME in self.verdicts


class Filter(NamedTuple):
    """One list of values to choose from."""

    name: str
    """The field of :class:`Line`, and the key in the link."""
    label: str
    values: tuple[str, ...]


class Chip(NamedTuple):
    """How many rows have a result, which is a filter, too."""

    n: int
    word: str
    name: str
    """Class of its shape and colour."""
    value: str
    """The value of the filter."""


def lines(report: Report, source: str, addresses: Addresses, answers: Answers) -> list[Line]:
    """Return the rows of the matrix as the page ``source`` shows them, the worst first."""
    stacks = [stack.id for stack in report.stacks]
    rows = sorted(report.rows, key=severity)
    return [line(row, stacks, source, addresses, answers) for row in rows]


def severity(row: Row) -> tuple[bool, list[int]]:
    """Return a key by which rows are sorted: what fails the run, then the worst verdicts."""
    is_known = all(cell.verdict.passes for cell in row.cells)
    return is_known, sorted(map(rank_of, row.cells))


def line(row: Row, stacks: list[str], source: str, addresses: Addresses, answers: Answers) -> Line:
    """Return one row of the matrix."""
    wrong = answers.wrong(row)
    states = {
        cell.cell.stack: state(cell, source, addresses, wrong.get(cell.cell.stack, ()))
        for cell in row.cells
    }
    variant = row.cells[0].cell.variant if row.cells else None
    signals = (
        signal.signal
        for cell in row.cells
        for signal in cell.signals
        if signal.outcome not in ("identical", "not compared")
    )
    return Line(
        model=row.model,
        link=addresses.page(source, model_page(row.model)),
        variant=row.variant,
        dtype=variant.dtype if variant else "",
        attention=variant.attention if variant else "",
        group=row.group or "",
        states=tuple(states.get(stack) for stack in stacks),
        verdicts=_verdicts(row),
        findings=_findings(row, source, addresses, answers),
        signals=_once(signals),
        moved=tuple(cell.cell.stack for cell in row.cells if cell.judged not in QUIET),
    )


def _verdicts(row: Row) -> tuple[str, ...]:
    """Return the verdicts of a row, and whether one of them is new or none of them a difference."""
    words = [word for cell in row.cells for word in (cell.verdict.value, cell.judged.value)]
    if any(not cell.verdict.passes for cell in row.cells):
        words.append(NEW)
    if is_quiet(row):
        words.append(SAME)
    return _once(words)


def _findings(row: Row, source: str, addresses: Addresses, answers: Answers) -> tuple[Named, ...]:
    cells = sorted(row.cells, key=rank_of)  # what explains the worst cell stands first
    named: dict[str, Named] = {}
    for known in answers.known(cells, row):
        code = known.finding.code
        rule = answers.rules.get(code)
        link = addresses.page(source, HOME, rule_anchor(code)) if rule else ""
        named.setdefault(code, Named(code, rule.name if rule else "", link, known.explains))
    return tuple(named.values())


def rule_anchor(code: str) -> str:
    """Return the id of the text of a rule on the first page."""
    return anchor("rule", code)


def chips(matrix: list[Line]) -> list[Chip]:
    """Return how many rows have each result: what is new, what is worst, …, what is identical."""
    n_new = sum(NEW in row.verdicts for row in matrix)
    counted = [Chip(n_new, "new", "chip-new" if n_new else "chip-none", NEW)]
    for verdict, (singular, plural) in CHIPS.items():
        n = sum(verdict.value in row.verdicts for row in matrix)
        if n:
            counted.append(
                Chip(n, singular if n == 1 else plural, class_of(verdict), verdict.value)
            )
    n_same = sum(row.is_same for row in matrix)
    if n_same:
        counted.append(Chip(n_same, "identical", class_of(Verdict.IDENTICAL), SAME))
    return counted


def filters(matrix: list[Line]) -> list[Filter]:
    """Return the lists to choose from; a list with one value or none is left out."""
    order = (NEW, *(verdict.value for verdict in SEVERITY), Verdict.EXPECTED.value, SAME)
    ranks = {word: i for i, word in enumerate(order)}
    verdicts = {word for row in matrix for word in row.verdicts}
    codes = {finding.code for row in matrix for finding in row.findings}
    choices = [
        Filter("verdicts", "Verdict", tuple(sorted(verdicts, key=lambda v: ranks.get(v, 99)))),
        Filter("findings", "Finding", tuple(sorted(codes))),
        Filter("group", "Group", tuple(sorted({row.group for row in matrix} - {""}))),
        Filter("dtype", "Dtype", tuple(sorted({row.dtype for row in matrix} - {""}))),
        Filter("attention", "Attention", tuple(sorted({r.attention for r in matrix} - {""}))),
        Filter("signals", "Signal", _once(s for row in matrix for s in row.signals)),
    ]
    return [choice for choice in choices if len(choice.values) > 1]


def ranks() -> str:
    """Return the classes of the verdicts, the most severe first, for sorting."""
    return " ".join(map(class_of, SEVERITY))


def _once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))

"""The matrix of models and releases, with what it can be filtered by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.records.ids import EXPLANATORY, Verdict
from samebits.reports.html.addresses import Addresses, model_page
from samebits.reports.html.states import SEVERITY, State, class_of, state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.report import Report, Row


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
    findings: tuple[str, ...]
    signals: tuple[str, ...]
    """Signals that differ from the reference in some cell."""


class Filter(NamedTuple):
    """One list of values to choose from."""

    name: str
    """The field of :class:`Line`, and the key in the link."""
    label: str
    values: tuple[str, ...]


def lines(report: Report, source: str, addresses: Addresses) -> list[Line]:
    """Return the rows of the matrix as the page ``source`` shows them."""
    stacks = [stack.id for stack in report.stacks]
    return [line(row, stacks, source, addresses) for row in report.rows]


def line(row: Row, stacks: list[str], source: str, addresses: Addresses) -> Line:
    """Return one row of the matrix."""
    states = {cell.cell.stack: state(cell, source, addresses) for cell in row.cells}
    variant = row.cells[0].cell.variant if row.cells else None
    verdicts = (word for cell in row.cells for word in (cell.verdict.value, cell.judged.value))
    codes = (finding.code for cell in row.cells for finding in cell.findings)
    signals = (
        signal.signal
        for cell in row.cells
        for signal in cell.signals
        if signal.outcome not in ("identical", "not compared") and signal.signal not in EXPLANATORY
    )
    return Line(
        model=row.model,
        link=addresses.page(source, model_page(row.model)),
        variant=row.variant,
        dtype=variant.dtype if variant else "",
        attention=variant.attention if variant else "",
        group=row.group or "",
        states=tuple(states.get(stack) for stack in stacks),
        verdicts=_once(verdicts),
        findings=tuple(sorted(set(codes))),
        signals=_once(signals),
    )


def filters(matrix: list[Line]) -> list[Filter]:
    """Return the lists to choose from; a list with one value or none is left out."""
    ranks = {verdict.value: i for i, verdict in enumerate((*SEVERITY, Verdict.EXPECTED))}
    verdicts = {word for row in matrix for word in row.verdicts}
    choices = [
        Filter("verdicts", "Verdict", tuple(sorted(verdicts, key=lambda v: ranks.get(v, 99)))),
        Filter("findings", "Finding", tuple(sorted({f for row in matrix for f in row.findings}))),
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

"""Probes of the user's: what each file of them gives on each stack, and all of one model's."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.outcome import differs
from samebits.compare.registry import signal_names
from samebits.records.comparison import CellResult, SignalComparison
from samebits.records.ids import Signal, Verdict
from samebits.records.ladder import Kind
from samebits.records.report import Report, Row
from samebits.records.subject import Reason
from samebits.reports.cell.ladder import KIND_WORDS, informing_steps_of
from samebits.reports.cell.tensors import signal_items
from samebits.reports.stories import row_name
from samebits.text.blocks import below, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.numbers import count

TITLE = "Probes of your own"
NOT_OBSERVED = "\N{EN DASH}"
_WORST_FIRST: tuple[Kind, ...] = ("diverged", "undecided", "rounding")


def probes(report: Report) -> Markdown:
    """Return a line for each row and each file of probes; empty if there are none."""
    stacks = [stack.id for stack in report.stacks]
    lines = [
        [code(row_name(row)), code(name), _role(row, name), *_answers(row, name, stacks)]
        for row in report.rows
        for name in _names(row)
    ]
    if not lines:
        return EMPTY
    intro = Markdown(
        "What the functions of the probe files returned, compared with the reference by bytes. A file "
        "that informs has no part in a verdict. *Not repeatable*: two runs of one cell differ."
    )
    return page([heading(2, TITLE), intro, table(["row", "probe", "", *stacks], lines)])


def probes_of(rows: list[Row]) -> Markdown:
    """Return what differs in the probes of one model that only inform, for its own page.

    Those that count are shown among the signals.
    """
    blocks = [
        block
        for row in rows
        for cell in row.cells
        if any(signal.outcome != "identical" for signal in cell.informing)
        for block in _of_cell(cell)
    ]
    return below(heading(2, f"{TITLE} that only inform"), *blocks)


def _of_cell(cell: CellResult) -> Iterator[Markdown]:
    yield heading(3, f"{cell.cell.variant} on {cell.cell.stack}")
    for signal in cell.informing:
        if signal.outcome != "identical":
            yield signal_items(signal) or fill("{}: {}", code(signal.signal), signal.note)
    yield informing_steps_of(cell)


def _names(row: Row) -> dict[Signal, None]:
    """Return the names of the files whose probes ran in some cell of a row."""
    names = signal_names()
    return dict.fromkeys(
        signal.signal
        for cell in row.cells
        for signal in (*cell.signals, *cell.informing)
        if signal.signal not in names
    )


def _role(row: Row, name: Signal) -> str:
    informs = any(signal.signal == name for cell in row.cells for signal in cell.informing)
    return "informs" if informs else "counts"


def _answers(row: Row, name: Signal, stacks: list[str]) -> list[Markdown]:
    cells = {cell.cell.stack: cell for cell in row.cells}
    return [
        _answer(cells[stack], name) if stack in cells else prose(NOT_OBSERVED) for stack in stacks
    ]


def _answer(cell: CellResult, name: Signal) -> Markdown:
    signal = next((s for s in (*cell.signals, *cell.informing) if s.signal == name), None)
    if signal is None:
        return prose("reference" if cell.verdict is Verdict.REFERENCE else NOT_OBSERVED)
    if signal.outcome == "differs":
        kind = _kind(cell, name)
        figure = f"{count(signal.n_differ)} of {count(signal.n_items)}"
        if kind is None:
            return fill("**differs** {}", figure)
        return fill("**differs** {} ({})", figure, KIND_WORDS[kind])
    words = [signal.outcome] if signal.outcome == "identical" else []
    return prose("; ".join([*words, *_reasons(signal)]) or signal.outcome)


def _reasons(signal: SignalComparison) -> Iterator[str]:
    reasons = {item.reason for item in signal.items}
    if Reason.NOT_REPEATABLE in reasons:
        yield "not repeatable"
    if Reason.RAISED in reasons:
        yield "raises"


def _kind(cell: CellResult, name: Signal) -> Kind | None:
    """Return the worst that the ladder says of a file's results; None if it says nothing.

    It has to cover all that differs: a part of one side has no place on it.
    """
    ladder = cell.ladder.steps if cell.ladder is not None else ()
    steps = [step for step in (*ladder, *cell.informing_steps) if step.signal == name]
    signal = next(s for s in (*cell.signals, *cell.informing) if s.signal == name)
    places = {item.subject.tensor for item in signal.items if differs(item)}
    if not places <= {step.subject.tensor for step in steps}:
        return "diverged" if any(step.kind == "diverged" for step in steps) else None
    kinds = {step.kind for step in steps}
    return next((kind for kind in _WORST_FIRST if kind in kinds), None)

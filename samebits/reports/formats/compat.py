"""compat.json: for each model the ranges of releases that do the same, and what changes between them."""

from __future__ import annotations

from itertools import pairwise

from samebits.jobs.cells import NOT_STARTED
from samebits.records.comparison import CellResult
from samebits.records.compat import CompatFile, CompatModel, CompatRange, CompatRelease, State
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer import of_cell
from samebits.reports.answer.side import faults
from samebits.reports.upgrade import change_between

PATH = "compat.json"
MARK = ' "format": "samebits-compat"'

_STATES: dict[Verdict, State] = {
    Verdict.FAILED: "raises",
    Verdict.UNSTABLE: "unstable",
    Verdict.ABSENT: "absent",
    Verdict.NOT_FINISHED: "not compared",
    Verdict.NOT_OBSERVED: "not compared",
}


def render(report: Report) -> dict[str, str]:
    """Return the text of compat.json by its path."""
    return {PATH: compat(report).model_dump_json(indent=1) + "\n"}


def compat(report: Report) -> CompatFile:
    """Return the ranges of all models of a report."""
    releases = tuple(
        CompatRelease(id=s.id, transformers=s.transformers, torch=s.torch, python=s.python)
        for s in report.stacks
    )
    sources = {each.model: each.source for each in report.checkpoints}
    models = tuple(
        CompatModel(
            model=row.model,
            variant=row.variant,
            source=sources.get(row.model, ""),
            ranges=ranges(row, report),
        )
        for row in report.rows
    )
    return CompatFile(
        samebits=report.samebits,
        started=report.started,
        level=report.level,
        releases=releases,
        models=models,
    )


def ranges(row: Row, report: Report) -> tuple[CompatRange, ...]:
    """Return the ranges of a row, the oldest first; a release that could not be built is in none."""
    if not row.cells:
        return ()
    wrong = faults(row, report)
    made = [_first(row.cells[0], row, report)]
    for before, after in pairwise(row.cells):
        step = _step(before, after, row, report)
        if step is None:
            made[-1] = made[-1].model_copy(update={"last": after.cell.stack})
        else:
            made.append(step)
    return tuple(each.model_copy(update={"wrong": wrong.get(each.first, ())}) for each in made)


def _first(cell: CellResult, row: Row, report: Report) -> CompatRange:
    state = _state(cell)
    stack = cell.cell.stack
    made = CompatRange(first=stack, last=stack, state=state, bits=_bits(cell, row))
    if state in ("raises", "unstable"):
        about = of_cell(cell, report)
        made = made.model_copy(update={"what": about.change, "where": about.where, "do": about.do})
    return made


def _step(before: CellResult, after: CellResult, row: Row, report: Report) -> CompatRange | None:
    """Return the range that begins with a cell; None if it continues the range before it."""
    change = change_between(row, before, after)
    if change is None:
        return None
    stack = after.cell.stack
    made = CompatRange(
        first=stack,
        last=stack,
        state=_state(after),
        bits=_bits(after, row),
        step=change.kind,
        direct=row.reference in (before.cell.stack, stack),
    )
    if change.kind in ("new", "gone", "open"):
        return made
    about = of_cell(change.judged, report)
    facts = {"what": about.change, "where": about.where, "side": about.side.why, "do": about.do}
    return made.model_copy(update={**facts, "findings": change.codes})


def _state(cell: CellResult) -> State:
    if cell.failure is not None and cell.failure.type == NOT_STARTED:
        return "not compared"  # there is no checkpoint, or no environment
    return _STATES.get(cell.judged, "computes")


def _bits(cell: CellResult, row: Row) -> str:
    """Return the letter of the bits of a cell; '' if it has none."""
    if _state(cell) != "computes":
        return ""
    stack = cell.cell.stack
    return next((band.does for band in row.bands if stack in band.stacks), "")

"""Which cells the toy asks, and how their sums compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.toy.records import ADD, TOY, ToyFile, ToyOfRow

from samebits.compare.standing import judged
from samebits.jobs.records import Options, Task
from samebits.matrix.plan import first_on_cpu
from samebits.questions.question import RowName
from samebits.records.capture import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.matrix.spec import ModelSpec
    from samebits.questions.question import Run
    from samebits.records.capture import Capture
    from samebits.records.ids import CellId


class Adding(Task):
    """How many numbers a job adds up."""

    n: int


def options(_cell: CellId, _model: ModelSpec) -> Options:
    """Ask every cell."""
    return Options()


def of_captures(captures: Mapping[str, Capture], _reference: str) -> ToyOfRow | None:
    """Return the sums that phases made."""
    phase = TOY.by_stack(captures)
    return ToyOfRow(phase=phase) if phase else None


async def ask(run: Run) -> dict[RowName, ToyOfRow]:
    """Let every cell of the first CPU row of each model add up by a job."""

    async def of_cell(cell: CellId) -> ToyFile:
        ready = await run.ready(cell)
        assert ready is not None
        answer = await run.lab.ask(ADD, Adding(n=64), ready)
        return ToyFile(cell=cell, failure=answer) if isinstance(answer, Failure) else answer

    rows = first_on_cpu(run.plan, lambda name: run.matrix.model(name).asks(TOY.name))
    cells = [cell for row in rows for cell in row.cells if run.has_stack(cell)]
    files = await run.each("toy", "cells add up", {cell: of_cell(cell) for cell in cells})
    answers = {}
    for row in rows:
        jobs = {cell.stack: files[cell] for cell in row.cells if cell in files}
        reference = jobs.get(row.reference)
        standings = {
            stack: standing(reference, file)
            for stack, file in jobs.items()
            if reference is not None and stack != row.reference
        }
        answers[RowName(row.model, str(row.variant))] = ToyOfRow(jobs=jobs, standings=standings)
    return answers


def standing(reference: ToyFile, candidate: ToyFile) -> str:
    """Return how two sums compare: by their bits, else by the same sums in float64."""
    if reference.own == candidate.own:
        return "identical"
    return judged(abs(reference.own - candidate.own), abs(reference.float64 - candidate.float64))

"""Which steps are looked at: from each stack of a model to the next one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from samebits.matrix.plan import first_on_cpu
from samebits.questions.changes.compare import Side, step
from samebits.questions.changes.records import CHANGES, KEPT, ChangesOfRow, StepFile
from samebits.questions.changes.release import Release
from samebits.questions.question import RowName
from samebits.records.record import read_record
from samebits.stacks.build import transformers_folder
from samebits.storage.receipt import source_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samebits.jobs.common import ReadyCell
    from samebits.matrix.plan import PlannedRow
    from samebits.questions.changes.records import Step
    from samebits.questions.question import Run

Cells = dict[str, list["ReadyCell"]]
"""Stack -> the cells of one model, in all variants; oldest stack first."""


async def ask(run: Run) -> dict[RowName, ChangesOfRow]:
    """Compare the sources of each two neighbouring stacks, for every model that ran in both.

    The sources of a stack are forgotten once no later step needs them, as those of thirty are large.
    """
    rows = first_on_cpu(run.plan, lambda model: run.matrix.model(model).asks(CHANGES.name))
    cells = {RowName(row.model, str(row.variant)): await _cells(run, row) for row in rows}
    by_pair: dict[tuple[str, str], list[RowName]] = {}
    for row, stacks in cells.items():
        for pair in pairwise(stacks):
            by_pair.setdefault(pair, []).append(row)
    steps: dict[RowName, list[Step]] = {}
    releases: dict[str, Release] = {}
    for pair, names in by_pair.items():
        releases = {stack: releases[stack] for stack in pair if stack in releases}
        for row in names:
            sides = {stack: cells[row][stack] for stack in pair}
            if (of_pair := await _step(run, row, sides, releases)) is not None:
                steps.setdefault(row, []).append(of_pair)
    return {row: ChangesOfRow(steps=tuple(of_row)) for row, of_row in steps.items()}


async def _cells(run: Run, row: PlannedRow) -> Cells:
    """Return the cells of a row's model that can run, by stack."""
    cells: Cells = {}
    stacks = [cell.stack for cell in row.cells]
    for cell in run.plan.cells:
        if cell.model == row.model and cell.stack in stacks and run.has_stack(cell):
            ready = await run.ready(cell)
            if ready is not None:
                cells.setdefault(cell.stack, []).append(ready)
    return {stack: cells[stack] for stack in stacks if stack in cells}


async def _step(run: Run, row: RowName, sides: Cells, releases: dict[str, Release]) -> Step | None:
    """Return the step of a model, which is kept, as to read the sources takes seconds.

    None: no function was recorded in one of the stacks.
    """
    jobs = [_of_jobs(run, cells) for cells in sides.values()]
    keys = [[run.capture_key(cell) for cell in cells] for cells in sides.values()]
    facts = {
        "samebits": source_digest(),
        "python": sys.version_info[:2],
        "jobs": jobs,
        "keys": keys,
    }
    cache = run.lab.cache
    path = cache.path(KEPT.folder, row.model, facts=facts)
    file = None if cache.fresh else read_record(path, StepFile)
    if file is not None:
        cache.dependencies.file(path)
        return file.step
    entered = {stack: run.entered([c.cell for c in cells]) for stack, cells in sides.items()}
    of_pair = None
    if all(entered.values()):
        for stack, cells in sides.items():
            releases.setdefault(stack, Release(transformers_folder(cells[0].stack)))
        of_pair = await asyncio.to_thread(_compared, entered, releases)
    with contextlib.suppress(OSError):  # without room on the disk the next run reads them again
        run.store.write_json(path, StepFile(step=of_pair).model_dump_json())
    cache.dependencies.file(path)
    return of_pair


def _of_jobs(run: Run, cells: Sequence[ReadyCell]) -> list[tuple[str, list[int]]]:
    """Return what jobs beside the captures entered, in order."""
    files = [run.lab.entered.get(cell.cell, {}) for cell in cells]
    return sorted((file, sorted(lines)) for of_cell in files for file, lines in of_cell.items())


def _compared(
    entered: Mapping[str, Mapping[str, set[int]]], releases: Mapping[str, Release]
) -> Step:
    reference, candidate = (
        Side(stack, releases[stack], of_stack) for stack, of_stack in entered.items()
    )
    return step(reference, candidate)

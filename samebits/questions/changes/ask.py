"""Which steps are looked at: from each stack of a model to the next one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from samebits.matrix.plan import first_on_cpu
from samebits.questions.changes.compare import Side, step
from samebits.questions.changes.records import CHANGES, STEP, ChangesOfRow, StepFile
from samebits.questions.changes.release import Release
from samebits.questions.question import RowName
from samebits.records.record import read_record
from samebits.stacks.build import transformers_folder
from samebits.storage.receipt import source_digest

if TYPE_CHECKING:
    from samebits.questions.changes.records import Step
    from samebits.questions.question import Run
from samebits.stacks.build import Stack

Entered = dict[str, set[int]]


class Given(NamedTuple):
    """What is known of one side of a step before its sources are read."""

    stack: str
    release: Release
    entered: Entered


async def ask(run: Run) -> dict[RowName, ChangesOfRow]:
    """Compare the sources of each two neighbouring stacks, for every model that ran in both.

    The sources of a stack are forgotten once no later step needs them, as those of thirty are large.
    """
    stacks = await _stacks(run)
    by_pair: dict[tuple[str, str], list[RowName]] = {}
    for row, of_row in stacks.items():
        for pair in pairwise(of_row):
            by_pair.setdefault(pair, []).append(row)
    steps: dict[RowName, list[Step]] = {}
    releases: dict[str, Release] = {}
    for pair, rows in by_pair.items():
        releases = {
            id: releases.get(id) or Release(transformers_folder(stacks[rows[0]][id])) for id in pair
        }
        for row in rows:
            entered = [_entered(row.model, id, run) for id in pair]
            if all(entered):
                locks = [stacks[row][id].lock_digest for id in pair]
                sides = [Given(id, releases[id], of) for id, of in zip(pair, entered, strict=True)]
                of_pair = await _step(run, row, locks, sides)
                steps.setdefault(row, []).append(of_pair)
    return {row: ChangesOfRow(steps=tuple(of_row)) for row, of_row in steps.items()}


async def _step(run: Run, row: RowName, locks: list[str], sides: list[Given]) -> Step:
    """Return the step of a model, which is kept: to read the sources takes seconds."""
    facts = {
        "samebits": source_digest(),
        "python": sys.version_info[:2],
        "stacks": [(side.stack, lock) for side, lock in zip(sides, locks, strict=True)],
        "entered": [
            {file: sorted(lines) for file, lines in sorted(side.entered.items())} for side in sides
        ],
    }
    path = run.lab.cache.path(STEP.folder, row.model, facts=facts)
    run.lab.cache.dependencies.file(path)
    kept = None if run.lab.cache.fresh else read_record(path, StepFile)
    if kept is not None:
        return kept.step
    of_pair = await asyncio.to_thread(lambda: step(*(Side(*side) for side in sides)))
    with contextlib.suppress(OSError):  # without room on the disk the next run reads them again
        run.store.write_json(path, StepFile(step=of_pair).model_dump_json())
    return of_pair


async def _stacks(run: Run) -> dict[RowName, dict[str, Stack]]:
    """Return the stacks that can run a model, oldest first, under its first CPU row."""
    stacks = {}
    for row in first_on_cpu(run.plan, lambda model: run.matrix.model(model).asks(CHANGES.name)):
        ready = [await run.ready(cell) for cell in row.cells if run.has_stack(cell)]
        of_row = {cell.cell.stack: cell.stack for cell in ready if cell is not None}
        stacks[RowName(row.model, str(row.variant))] = of_row
    return stacks


def _entered(model: str, stack: str, run: Run) -> Entered:
    """Return what the jobs of a model entered in a stack, in all variants; empty if none was observed."""
    entered: Entered = {}
    for cell in run.plan.cells:
        if (cell.model, cell.stack) == (model, stack):
            for file, lines in run.entered(cell).items():
                entered.setdefault(file, set()).update(lines)
    return entered

"""Which steps are looked at: from each stack of a model to the next one.

What the files of a release define is kept beside its environment, as to read them takes seconds; the
steps are kept in the work folder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from samebits.jobs.common import ReadyCell
from samebits.matrix.plan import PlannedRow, first_on_cpu
from samebits.questions.changes.compare import Side, changed_frames, step
from samebits.questions.changes.reach import Calls, Model
from samebits.questions.changes.records import (
    CHANGES,
    KEPT,
    ChangesOfRow,
    Step,
    StepFile,
)
from samebits.questions.changes.release import Release
from samebits.questions.question import RowName, Run
from samebits.records.comparison import CellResult
from samebits.records.question import Answer, keys
from samebits.records.record import read_record
from samebits.stacks.build import own_folder, transformers_folder
from samebits.storage.receipt import source_digest

Cells = dict[str, list["ReadyCell"]]
"""Stack -> the cells of one model, in all variants; oldest stack first."""
SOURCES = "samebits-sources"
"""Folder beside an environment, or a copy of sources, with what its files define."""


async def ask(run: Run) -> dict[RowName, ChangesOfRow]:
    """Compare the sources of each two neighbouring stacks, for every model that ran in both."""
    rows = first_on_cpu(run.plan, lambda model: run.matrix.model(model).asks(CHANGES.name))
    shelf = Shelf()
    cells = {RowName(row.model, str(row.variant)): await _cells(run, row) for row in rows}
    by_pair: dict[tuple[str, str], list[RowName]] = {}
    for row, stacks in cells.items():
        for pair in pairwise(stacks):
            by_pair.setdefault(pair, []).append(row)
    steps: dict[RowName, list[Step]] = {}
    for pair, names in by_pair.items():
        shelf.leave(frozenset(pair))
        for row in names:
            sides = {stack: cells[row][stack] for stack in pair}
            if (of_pair := await _step(run, row, sides, shelf)) is not None:
                steps.setdefault(row, []).append(of_pair)
    raised = {row: await _raised(run, stacks, shelf) for row, stacks in cells.items()}
    shelf.leave(frozenset())
    return {
        row: ChangesOfRow(
            steps=tuple(steps.get(row, ())), off=tuple(sorted(_off(run, row))), raised=raised[row]
        )
        for row in cells
        if row in steps or raised[row]
    }


async def _raised(run: Run, cells: Cells, shelf: Shelf) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return stack -> the frames of its exception, as file and line, whose function the reference has otherwise."""
    raised: dict[str, tuple[tuple[str, int], ...]] = {}
    for stack, (cell, *_) in cells.items():
        result = run.results.get(cell.cell)
        before = result.reference.stack if result is not None and result.reference else stack
        if result is None or result.failure is None or before == stack or before not in cells:
            continue
        sides = {before: cells[before], stack: cells[stack]}
        if all(map(_has_sources, sides.values())):
            reference, candidate = (shelf.release(name, of[0]) for name, of in sides.items())
            frames = await asyncio.to_thread(
                changed_frames, result.failure.frames, reference, candidate
            )
            raised |= {stack: frames} if frames else {}
    return raised


def of_cell(result: CellResult, answers: Mapping[str, Answer]) -> CellResult:
    """Return a cell whose exception says which of its frames changed."""
    answer = CHANGES.in_row(answers)
    changed = answer.raised.get(result.cell.stack) if answer is not None else None
    if result.failure is None or not changed:
        return result
    frames = tuple(
        frame.model_copy(update={"changed": (frame.file, frame.line) in changed})
        for frame in result.failure.frames
    )
    failure = result.failure.model_copy(update={"frames": frames})
    return result.model_copy(update={"failure": failure})


class Shelf:
    """The releases whose sources are in memory."""

    def __init__(self) -> None:
        self._releases: dict[str, Release] = {}

    def release(self, stack: str, cell: ReadyCell) -> Release:
        """Return the sources of a stack."""
        if stack not in self._releases:
            folder, own = transformers_folder(cell.stack), own_folder(cell.stack)
            self._releases[stack] = Release(folder, own / SOURCES)
        return self._releases[stack]

    def leave(self, wanted: frozenset[str]) -> None:
        """Keep and forget the sources of all stacks but some, as those of thirty are large."""
        for stack in self._releases.keys() - wanted:
            self._releases.pop(stack).keep()


def _keep(run: Run, path: Path, file: StepFile) -> None:
    with contextlib.suppress(OSError):  # without room on the disk the next run reads them again
        run.store.write_json(path, file.model_dump_json())
    run.lab.cache.dependencies.file(path)


def _off(run: Run, row: RowName) -> set[str]:
    """Return the questions that a model is not asked."""
    model = run.matrix.model(row.model)
    return {key.name for key in keys() if not model.asks(key.name)}


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


async def _step(run: Run, row: RowName, sides: Cells, shelf: Shelf) -> Step | None:
    """Return the step of a model, which is kept; None: no function was recorded in one of the stacks."""
    jobs = [_of_jobs(run, cells) for cells in sides.values()]
    keys = [[run.capture_key(cell) for cell in cells] for cells in sides.values()]
    facts = {
        "samebits": source_digest(),
        "jobs": jobs,
        "keys": keys,
        "off": sorted(_off(run, row)),
    }
    cache = run.lab.cache
    path = cache.path(KEPT.folder, row.model, facts=facts)
    file = None if cache.fresh else read_record(path, StepFile)
    if file is not None:
        cache.dependencies.file(path)
        return file.step
    calls = {stack: _calls(run, cells) for stack, cells in sides.items()}
    of_pair = None
    if all(of_stack.compared and _has_sources(sides[stack]) for stack, of_stack in calls.items()):
        releases = {stack: shelf.release(stack, cells[0]) for stack, cells in sides.items()}
        of_pair = await asyncio.to_thread(_compared, calls, releases, _model(run, row, sides))
    _keep(run, path, StepFile(step=of_pair))
    return of_pair


def _has_sources(cells: Sequence[ReadyCell]) -> bool:
    """Return True if this machine has the environment of a stack, which may be on another one."""
    try:
        return transformers_folder(cells[0].stack).is_dir()
    except (OSError, StopIteration):
        return False


def _of_jobs(run: Run, cells: Sequence[ReadyCell]) -> list[tuple[str, list[int]]]:
    """Return what jobs beside the captures entered, in order."""
    tables = [table.get(c.cell, {}) for c in cells for table in (run.lab.entered, run.lab.aside)]
    return sorted((file, sorted(lines)) for of_cell in tables for file, lines in of_cell.items())


def _calls(run: Run, cells: Sequence[ReadyCell]) -> Calls:
    names = [ready.cell for ready in cells]
    return Calls(run.entered(names), run.entered(names, aside=True))


def _model(run: Run, row: RowName, sides: Cells) -> Model:
    """Return what the config of a model names, in any of its stacks."""
    words: set[str] = set()
    fields: dict[str, bool] = {}
    generates = False
    for ready in (ready for cells in sides.values() for ready in cells):
        capture = run.capture(ready.cell)
        skips = capture.skips if capture is not None else ()
        generates |= all(skip.why != "no generation" for skip in skips)
        if capture is not None:
            signals = capture.signals
            words.update(_strings(signals.config or {}))
            for name, is_set in _fields(signals.config or {}):
                fields[name] = fields.get(name, False) or is_set
            words.update([signals.load.model_class] if signals.load else [])
    unset = frozenset(name for name, is_set in fields.items() if not is_set)
    return Model(frozenset(words), frozenset(_off(run, row)), generates, unset)


def _fields(config: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """Yield each field of a config and its parts, and whether it is set."""
    for name, value in config.items():
        yield name, bool(value)
        if isinstance(value, Mapping):
            yield from _fields(value)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part)


def _compared(calls: Mapping[str, Calls], releases: Mapping[str, Release], model: Model) -> Step:
    reference, candidate = (
        Side(stack, releases[stack], of_stack, model) for stack, of_stack in calls.items()
    )
    return step(reference, candidate, model)

"""The scheduler of a run: it builds stacks, makes checkpoints and runs the jobs of cells.

All of this runs concurrently. The slots limit the jobs that run at the same time and their threads,
and each stack has one process that forks a child per job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, Union

from samebits.base.errors import CaptureError
from samebits.base.filestate import is_older
from samebits.compare.pair import ended as describe_end
from samebits.compare.phases import best_first, incomplete_at
from samebits.jobs import cells
from samebits.jobs.cache import JobCache
from samebits.jobs.cells import CellRunner
from samebits.jobs.common import ReadyCell, ReadyPair, threads_of
from samebits.jobs.inputs import Feeder
from samebits.jobs.lab import Lab
from samebits.matrix.plan import PlannedRow
from samebits.matrix.spec import StackSpec
from samebits.pipeline.answers import options_of
from samebits.pipeline.checkpoints import BuildFailed, RunCheckpoints
from samebits.pipeline.scope import Scope
from samebits.pipeline.stacks import RunStacks
from samebits.records.capture import Capture, Unfinished
from samebits.records.ids import CellId
from samebits.records.report import Spent
from samebits.stacks import costs
from samebits.stacks.build import Stack
from samebits.stacks.packages import ExtendedStack
from samebits.stacks.process import Running, Starter, cell_of, start_process
from samebits.storage.prune import STALE_AFTER
from samebits.terminal import failures
from samebits.text.numbers import duration, plural
from samebits_wire import seal
from samebits_wire.atomic import remove
from samebits_wire.folders import without_folders

Runs = tuple["Capture", "Capture"]
LazyRuns = Union[Runs, "Callable[[], Runs]"]
"""Captures, or a function that reads them."""


class CachedRow(Protocol):
    """A cached row of an earlier run that is still valid."""

    @property
    def outcomes(self) -> Mapping[str, tuple[str, str]]:
        """Stack -> how its cell ended, and why it failed."""


FindRow = Callable[["PlannedRow", "dict[CellId, tuple[Path, Path]]"], "CachedRow | None"]
"""Looks up the cached row for the captures at these paths; None if there is none."""


class Observed(Mapping["CellId", Runs]):
    """The captures of every cell, with the one to compare in first place.

    Captures of cached rows are read on first access.
    """

    def __init__(self, captures: dict[CellId, LazyRuns]) -> None:
        self._captures_of = captures

    def __getitem__(self, cell: CellId) -> Runs:
        runs = self._captures_of[cell]
        if callable(runs):
            runs = self._captures_of[cell] = runs()
        first, second = best_first(runs)
        return first, second

    def __iter__(self) -> Iterator[CellId]:
        return iter(self._captures_of)

    def __len__(self) -> int:
        return len(self._captures_of)


K = TypeVar("K")
T = TypeVar("T")
_MAX_WAIT_FOR_CHECKPOINTS = 2.0
"""Seconds to wait for checkpoints before the number of cells with captures is shown."""


async def _count_when_done(job: Coroutine[Any, Any, T], count_job: Callable[[], None]) -> T:
    """Run a job and count it as ended, even if it raises."""
    try:
        return await job
    finally:
        count_job()


class Scheduler:
    """Schedules the jobs of one run."""

    def __init__(
        self,
        scope: Scope,
        *,
        starter: Starter = start_process,
        builder: Callable[[StackSpec], Stack] | None = None,
        extender: Callable[[Stack, str, Sequence[str], Sequence[str]], ExtendedStack] | None = None,
    ) -> None:
        self.scope = scope
        cache = JobCache(
            scope.root,
            scope.store,
            scope.probes,
            scope.fingerprint,
            fresh=scope.order.fresh,
            dependencies=scope.dependencies,
            sharing=scope.sharing,
        )
        self.lab = Lab(cache)
        self.cells = CellRunner(cache, options_of)
        self.stacks = RunStacks(scope, starter, builder, extender)
        self.checkpoints = RunCheckpoints(scope, self.stacks, Feeder(cache))
        self.stacks.on_step = self._show_step
        self.stacks.mend = self.checkpoints.make_inputs_again
        self.machine: dict[str, Any] | None = None
        """Facts about the machine; None if no stack told them."""
        self.finished = False
        """Set at the end of a run that was not interrupted."""
        self._n_new_cells = 0
        self._outcomes: dict[str, dict[CellId, tuple[str, str]]] = {}

    async def observe(self, find_row: FindRow | None = None) -> Mapping[CellId, Runs]:
        """Build what is needed and return the captures of every cell of the plan.

        Rows that ``find_row`` finds in the cache do not run. Their captures are read on first
        access.
        """
        await self.stacks.build()
        models, n_cells = self.scope.plan.models, len(self.scope.plan.cells)
        description = f"{plural(n_cells, 'cell')} of {plural(len(models), 'model')}, each run {self._run_text}"
        self.scope.phases.begin("cells", n_cells, description)
        self.checkpoints.start()
        await self._show_estimate()
        async with asyncio.TaskGroup() as group:
            rows = [
                group.create_task(self._observe_row(row, find_row)) for row in self.scope.plan.rows
            ]
        await self._find_machine_facts()
        self.scope.phases.end("cells")
        return Observed({cell: runs for row in rows for cell, runs in row.result().items()})

    @property
    def _run_text(self) -> str:
        return "twice in full" if self.scope.order.level == "deep" else "twice"

    async def _show_estimate(self) -> None:
        """Show how many cells have captures of earlier runs, and how long the others will take."""
        captured = set() if self.scope.order.fresh else await self._cells_with_captures()
        all_cells = self.scope.plan.cells
        if captured:
            message = (
                f"{len(captured):,} of {plural(len(all_cells), 'cell')} known from an earlier run"
            )
            self.scope.progress.note(message)
        new = [str(cell) for cell in all_cells if cell not in captured]
        self._n_new_cells = len(new)
        level = self.scope.order.level
        estimate = costs.estimate(costs.read(self.scope.root), new, self.scope.n_slots, level)
        if estimate is not None:
            self.scope.progress.expect(estimate)
            remaining = duration(estimate.seconds)
            self.scope.progress.note(
                f"about {remaining} for the new cells, estimated from earlier runs"
            )
        elif new:
            self.scope.progress.note("no earlier run at this level to estimate the minutes from")

    async def _cells_with_captures(self) -> set[CellId]:
        """Return the cells that have captures, if their checkpoints are ready in time."""
        if not (self.scope.root / "captures").exists():
            return set()
        # a checkpoint still to be made has no captures, and hashing a new folder may take long
        await asyncio.wait(self.checkpoints.tasks.values(), timeout=_MAX_WAIT_FOR_CHECKPOINTS)
        captured = set()
        for row in self.scope.plan.rows:
            task = self.checkpoints.tasks[row.model]
            if task.done() and not task.exception() and (paths := await self._paths_of(row)):
                model = self.scope.matrix.model(row.model)
                captured |= {
                    cell for cell, pair in paths.items() if self.cells.are_captured(pair, model)
                }
        return captured

    async def _observe_row(
        self, row: PlannedRow, find_row: FindRow | None
    ) -> Mapping[CellId, LazyRuns]:
        """Return the captures of a row's cells; for a cached row, functions that read them."""
        paths = await self._paths_of(row) if find_row is not None else None
        if find_row is not None and paths and (cached := find_row(row, paths)) is not None:
            for cell in row.cells:
                self.scope.progress.done(cell, cached.outcomes[cell.stack][0])
            await self._share_captures(row, paths)
            self._report_failures(row, cached.outcomes)
            return {cell: partial(self.cells.read, pair) for cell, pair in paths.items()}
        async with asyncio.TaskGroup() as group:
            tasks = {cell: group.create_task(self._observe(cell)) for cell in row.cells}
        captures = {cell: task.result() for cell, task in tasks.items()}
        self._report_failures(row, {cell.stack: outcome(runs) for cell, runs in captures.items()})
        return captures

    async def _share_captures(
        self, row: PlannedRow, paths: Mapping[CellId, tuple[Path, Path]]
    ) -> None:
        """Push the captures of a cached row to the shared store."""
        if not self.scope.sharing.is_written:
            return
        checkpoint = await self.checkpoints.of(row.model)
        for pair in paths.values():
            with contextlib.suppress(CaptureError):
                await self.cells.share(checkpoint, pair[0].parent, self.cells.read(pair))

    def _report_failures(self, row: PlannedRow, outcomes: Mapping[str, tuple[str, str]]) -> None:
        """Show the failures of a model, once all of its rows have ended.

        A failure that all cells of the model share is then shown once, as a failure of the model.
        """
        ended = self._outcomes.setdefault(row.model, {})
        ended |= {cell: outcomes[cell.stack] for cell in row.cells}
        if len(ended) == sum(len(r.cells) for r in self.scope.plan.rows_of[row.model]):
            for line in failures.lines(ended):
                self.scope.progress.failure(line)

    def threads_of(self, row: PlannedRow) -> int:
        """Return the threads of the jobs of a row's cells; 1 without a checkpoint."""
        checkpoint = self.checkpoints.known.get(row.model)
        if checkpoint is None:
            return 1
        return threads_of(self.scope.matrix.model(row.model), checkpoint, row.variant)

    async def _paths_of(self, row: PlannedRow) -> dict[CellId, tuple[Path, Path]] | None:
        """Return the paths of a row's captures; None without a stack or a pinned checkpoint."""
        if any(self.stack_of(cell) is None for cell in row.cells):
            return None
        try:
            ready = [await self.ready(cell) for cell in row.cells]
        except BuildFailed:
            return None
        if not all(cell.checkpoint.pinned for cell in ready):
            return None
        return {cell.cell: self.cells.paths(cell) for cell in ready}

    def stack_of(self, cell: CellId) -> Stack | None:
        """Return the stack of a cell, with the packages of its model; None if there is none."""
        return self.stacks.stack(cell.model, cell.stack)

    async def look_again(self, missing: Mapping[CellId, Iterable[str]]) -> dict[CellId, Runs]:
        """Run cells again to store the values of tensors that turned out to differ."""
        description = f"{plural(len(missing), 'cell')} again, to store the values that differ"
        jobs = {cell: self.captures(cell, tuple(hashes)) for cell, hashes in missing.items()}
        return await self.each("second look", description, jobs)

    async def all(
        self, phase: str, description: str, jobs: Sequence[Coroutine[Any, Any, T]]
    ) -> list[T]:
        """Run jobs side by side in a phase that counts them, and return their results in order."""
        with self.scope.phases(phase, len(jobs), description) as count_job:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_count_when_done(job, count_job)) for job in jobs]
        return [task.result() for task in tasks]

    async def each(
        self, phase: str, description: str, jobs: Mapping[K, Coroutine[Any, Any, T]]
    ) -> dict[K, T]:
        """Run jobs side by side in a phase, and return their results; without jobs there is none."""
        if not jobs:
            return {}
        return dict(zip(jobs, await self.all(phase, description, [*jobs.values()]), strict=True))

    async def ready(self, cell: CellId) -> ReadyCell:
        """Return a cell that has a stack, once its checkpoint is there.

        Raises:
            BuildFailed: it has none.

        """
        checkpoint = await self.checkpoints.of(cell.model)
        stack = self.stack_of(cell)
        assert stack is not None
        process = self.stacks.process(cell.model, cell.stack)
        return ReadyCell(cell, self.scope.matrix.model(cell.model), checkpoint, stack, process)

    async def pair(self, reference: CellId, candidate: CellId) -> ReadyPair:
        """Return two cells that have stacks, once their checkpoint is there."""
        return ReadyPair(await self.ready(reference), await self.ready(candidate))

    def _show_step(self, job: Mapping[str, Any], running: Running) -> None:
        """Show the progress of a job; a cell is shown until both of its runs have ended."""
        cell, kind = cell_of(job), str(job["kind"])
        if kind != "cell":
            name = f"{kind} of {cell or job.get('name', 'a checkpoint')}"
            self.scope.progress.step(name, running.phase, running.step, running.of)
        elif running.phase:
            self.scope.progress.step(cell, running.phase, running.step, running.of)

    async def _observe(self, cell: CellId) -> Runs:
        runs = await self.captures(cell, started=lambda: self.scope.progress.start(cell))
        self.scope.progress.done(cell, outcome(runs)[0])
        return runs

    async def captures(
        self,
        cell: CellId,
        hashes: tuple[str, ...] = (),
        started: Callable[[], None] = lambda: None,
    ) -> Runs:
        """Return the captures of a cell, with the values of tensors of these hashes."""
        if self.stack_of(cell) is None:
            return self._without_stack(cell)
        try:
            ready = await self.ready(cell)
        except BuildFailed as error:
            return _not_started(cell, "build", str(error), machine=error.machine)
        return await self.cells.observe(ready, hashes, started)

    def _without_stack(self, cell: CellId) -> Runs:
        """Return the captures of a cell whose stack, or whose packages, could not be installed."""
        if cell.stack in self.stacks.failures:
            failure = self.stacks.failures[cell.stack]
            return _not_started(cell, "stack", str(failure), machine=failure.machine)
        error = self.stacks.not_extended[cell.stack, self.scope.matrix.model(cell.model).packages]
        if error.contradicts:
            return cells.absent(cell, str(error))
        return _not_started(cell, "packages", str(error), machine=error.machine)

    async def _find_machine_facts(self) -> None:
        """Set the facts about the machine, from a stack's process or from an earlier run's file.

        If neither has them, a stack is started for them: a run with every capture cached has no
        process, and the run that made the captures may not have written the file yet.
        """
        path = self.scope.root / f"machine-{self.scope.fingerprint[:12]}.json"
        machines = (process.machine for process in self.stacks.processes.values())
        self.machine = next((machine for machine in machines if machine is not None), None)
        if self.machine is None:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                recorded = json.loads(seal.read(path))
                self.machine = recorded if isinstance(recorded, dict) else None
            if self.machine is not None:
                return
        for process in self.stacks.processes.values():
            self.machine = self.machine or await process.facts()
        if self.machine is None:
            return
        with contextlib.suppress(OSError):  # without room on the disk a stack is asked again
            self.scope.store.write_json(path, json.dumps(self.machine))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report should know, such as a shared store that failed."""
        checkpoints = (checkpoint.note for checkpoint in self.checkpoints.known.values())
        return (*self.scope.notes, *filter(None, checkpoints), *self.scope.sharing.problems)

    def keep_costs(self) -> None:
        """Save the costs of this run's jobs."""
        spending = [job for process in self.stacks.processes.values() for job in process.costs]
        recorded = costs.read(self.scope.root)  # read now: another run may have written it since
        phase_seconds = self.scope.phases.taken
        updated = costs.merged(
            recorded,
            spending,
            phase_seconds,
            self.scope.n_slots,
            new=self._n_new_cells,
            finished=self.finished,
            level=self.scope.order.level,
        )
        with contextlib.suppress(OSError):  # an estimate must not fail a run
            costs.write(self.scope.root, updated)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """CPU seconds of this run's jobs by kind, the most expensive kind first."""
        totals: dict[str, tuple[int, float]] = {}
        for process in self.stacks.processes.values():
            for kind, (jobs, cpu) in process.spent.items():
                total = totals.get(kind, (0, 0.0))
                totals[kind] = (total[0] + jobs, total[1] + cpu)
        most_expensive = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
        return tuple(
            Spent(kind=k, jobs=jobs, cpu=round(cpu, 2)) for k, (jobs, cpu) in most_expensive
        )

    async def close(self) -> None:
        """End all processes and tasks, and save what they cost."""
        self.stacks.end()
        await self.checkpoints.close()
        await self.stacks.close()
        self.lab.close()
        _remove_old(self.scope.root / "logs", f"*-{_ANY_RUN}.log")
        _remove_old(self.scope.root / "modules", f"*-{_ANY_RUN}")
        self.keep_costs()


_ANY_RUN = "[0-9a-f]" * 12


def _not_started(cell: CellId, phase: str, reason: str, *, machine: bool) -> Runs:
    """Return the captures of a cell that could not start: a failure, unless the machine was it."""
    if machine:
        return cells.not_finished(cell, phase, reason)
    return cells.failed(cell, phase, reason)


def _remove_old(folder: Path, pattern: str) -> None:
    """Remove the leftovers of runs from ``folder`` that are older than a week."""
    cutoff = time.time() - STALE_AFTER
    for path in folder.glob(pattern):
        if is_older(path, cutoff):
            with contextlib.suppress(OSError):
                remove(path)


def _missing(runs: Sequence[Capture]) -> Unfinished | None:
    """Return what the machine kept both runs from; None if they have what a verdict needs."""
    if all(run.status == "failed" for run in runs):
        missing = [incomplete_at(run) for run in runs]
        return missing[0] if all(missing) else None
    first, second = runs
    return incomplete_at(first, second) or incomplete_at(second, first)


def outcome(runs: Sequence[Capture]) -> tuple[str, str]:
    """Return how a cell ended, and one line on why it failed or did not finish."""
    run = runs[0]
    if (missing := _missing(runs)) is not None:
        return "unfinished", without_folders(describe_end(missing))
    if run.unfinished is not None:
        return run.status, without_folders(describe_end(run.unfinished))
    failure = run.raised
    if failure is None:
        return run.status, ""
    raised = failure.type != cells.NOT_STARTED
    line = f"{failure.phase}: {failure.in_words}" if raised else failure.in_short
    return run.status, without_folders(line)

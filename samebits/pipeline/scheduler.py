"""The scheduler of a run: it builds stacks, makes checkpoints and runs the jobs of cells.

All of this runs concurrently. The slots limit the jobs that run at the same time and their threads,
and each stack has one process that forks a child per job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.digests import digest_of_file, machine_fingerprint
from samebits.base.errors import CaptureError, PatchError, StackError, nearest
from samebits.base.filestate import Dependencies
from samebits.base.redaction import without_folders
from samebits.capsules.asking import CannotReproduce, ReproductionFailed
from samebits.capsules.judging import Party as CapsuleParty
from samebits.capsules.kept import CapsuleCache
from samebits.capsules.maker import Machine, Maker, Wanted
from samebits.capsules.running import Place, script_environment
from samebits.compare.pair import ended as describe_end
from samebits.compare.phases import best_first
from samebits.jobs import cells
from samebits.jobs.cache import JobCache
from samebits.jobs.cells import CellRunner
from samebits.jobs.checkpoints import Checkpoint, Checkpoints, builder_of, size_of
from samebits.jobs.common import threads_of
from samebits.jobs.crossings import (
    UNUSED,
    CrossedModel,
    Crosser,
    CrossingStack,
    remove,
    rows_to_cross,
)
from samebits.jobs.graft import Grafter
from samebits.jobs.inputs import Feeder
from samebits.jobs.ladder import Climber
from samebits.jobs.records import BuildJob
from samebits.jobs.step_graft import StepGrafter
from samebits.jobs.step_trace import StepTracer
from samebits.jobs.trace import TracedCell, TracedModel, Tracer
from samebits.jobs.trainer import PACKAGES as FOR_TRAINER
from samebits.jobs.trainer import TrainerRunner
from samebits.jobs.training import Trainer
from samebits.records.report import Spent
from samebits.records.trainer_file import TrainerFile
from samebits.stacks import costs, price
from samebits.stacks.build import Stack, StackBuilder, is_plain_lock, probes_digest
from samebits.stacks.environment import PACKAGES, probe_environment
from samebits.stacks.packages import ExtendedStack, PackageBuilder, PackagesError
from samebits.stacks.places import stacks_folder
from samebits.stacks.probes import PROBES
from samebits.stacks.process import StackProcess, cell_of, start_process, tail
from samebits.stacks.slots import Slots
from samebits.stacks.system import SYSTEM
from samebits.terminal import failures
from samebits.terminal.progress import Phases
from samebits.text.numbers import duration, plural

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from samebits.capsules.kept import Made
    from samebits.grafts.questions import GraftQuestions
    from samebits.ladder.asking import Ask
    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix, ModelSpec, StackSpec
    from samebits.pipeline.order import Order
    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult
    from samebits.records.crossing import CrossingsReport
    from samebits.records.graft import Graft
    from samebits.records.ids import CellId
    from samebits.records.ladder import LadderFile
    from samebits.records.step_graft import StepGraft
    from samebits.records.step_trace import StepOrigin
    from samebits.records.trace import Cause
    from samebits.records.training import TrainingFile
    from samebits.stacks.costs import Finished
    from samebits.stacks.process import Running, Starter
    from samebits.storage.sharing import Sharing
    from samebits.storage.store import Store
    from samebits.terminal.progress import Progress
    from samebits.trace.question import TraceRequest as TraceQuestions
    from samebits.training.question import StepQuestion

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


T = TypeVar("T")
ProcessKey = tuple[str, tuple[str, ...]]
"""A stack, and the packages of a model that run beside it."""
_MAX_WAIT_FOR_CHECKPOINTS = 2.0
"""Seconds to wait for checkpoints before the number of cells with captures is shown."""


async def _count_when_done(job: Coroutine[Any, Any, T], count_job: Callable[[], None]) -> T:
    """Run a job and count it as ended, even if it raises."""
    try:
        return await job
    finally:
        count_job()


class BuildFailed(Exception):  # noqa: N818  it fails the cells of the model, not the run
    """A checkpoint could not be made; the message says why."""


class Scheduler:
    """Schedules the jobs of one run and owns what they share.

    These are the work folder, the slots and the processes of the stacks.
    """

    def __init__(
        self,
        root: Path,
        matrix: Matrix,
        plan: Plan,
        store: Store,
        progress: Progress,
        environ: Mapping[str, str],
        order: Order,
        *,
        starter: Starter = start_process,
        builder: Callable[[StackSpec], Stack] | None = None,
        extender: Callable[[Stack, str, Sequence[str]], ExtendedStack] | None = None,
        dependencies: Dependencies | None = None,
        sharing: Sharing | None = None,
        whole: Plan | None = None,
    ) -> None:
        self._sharing = sharing
        self._whole = whole or plan
        """The plan of all shards, of which ``plan`` may be a part."""
        self._building: dict[str, asyncio.Lock] = {}
        self.dependencies = dependencies or Dependencies()
        self.stacks: dict[str, Stack] = {}
        self.failures: dict[str, str] = {}
        self.extended: dict[ProcessKey, ExtendedStack] = {}
        """Stacks with the packages of a model."""
        self.not_extended: dict[ProcessKey, PackagesError] = {}
        """Why there is no such stack."""
        self.checkpoints: dict[str, Checkpoint] = {}
        self.machine: dict[str, Any] | None = None
        self.environment: dict[str, str] = {}
        self.progress = progress
        self.phases = Phases(progress)
        self._n_new_cells = self._n_checkpoints_done = 0
        self._outcomes: dict[str, dict[CellId, tuple[str, str]]] = {}
        self._order = order
        self._root = root
        self._store = store
        self._probes = probes_digest(PROBES)
        self._matrix = matrix
        self._plan = plan
        self._environ = environ
        self._starter = starter
        self._fingerprint = machine_fingerprint(order.kernels)
        # a process id is not unique: two containers may share the folder
        self._run = uuid.uuid4().hex[:12]
        self._n_slots = order.jobs or len(os.sched_getaffinity(0))
        self._slots = Slots(self._n_slots, len(os.sched_getaffinity(0)))
        maker = digest_of_file(PROBES / "samebits_probe" / "model" / "build.py")
        self._checkpoint_store = Checkpoints(
            root, Path(matrix.path).parent, maker, dependencies=self.dependencies
        )
        job_cache = JobCache(
            root,
            store,
            self._probes,
            self._fingerprint,
            fresh=order.fresh,
            dependencies=self.dependencies,
            sharing=sharing,
        )
        self._runner = CellRunner(job_cache, sweep=order.sweep)
        self._feeder = Feeder(job_cache)
        self._tracer = Tracer(job_cache)
        self._grafter = Grafter(job_cache)
        self._climber = Climber(job_cache)
        self._crosser = Crosser(job_cache)
        self._trainer = Trainer(job_cache)
        self._step_tracer = StepTracer(job_cache)
        self._step_grafter = StepGrafter(job_cache)
        self._trainer_runner = TrainerRunner(job_cache)
        self._processes: dict[ProcessKey, StackProcess] = {}
        stack_builder = StackBuilder(
            root,
            environ,
            exclude_newer=matrix.exclude_newer,
            upgrade=order.upgrade,
            dependencies=self.dependencies,
            stacks=stacks_folder(root, environ),
            max_age=order.lock_age,
        )
        self._stack_builder = stack_builder
        self._build_stack = builder or stack_builder.build
        self._package_builder = PackageBuilder(
            root,
            Path(matrix.path).parent,
            environ,
            exclude_newer=matrix.exclude_newer,
            upgrade=order.upgrade,
            max_age=order.lock_age,
            dependencies=self.dependencies,
        )
        self._extend = extender or self._package_builder.extend
        self._checkpoint_tasks: dict[str, asyncio.Task[Checkpoint]] = {}

    async def observe(self, find_row: FindRow | None = None) -> Mapping[CellId, Runs]:
        """Build what is needed and return the captures of every cell of the plan.

        Rows that ``find_row`` finds in the cache do not run. Their captures are read on first
        access.
        """
        await self._build_stacks()
        self._open_processes()
        models, n_cells = self._plan.models, len(self._plan.cells)
        description = f"{plural(n_cells, 'cell')} of {plural(len(models), 'model')}, each run {self._run_text}"
        self.phases.begin("cells", n_cells, description)
        self.phases.begin("checkpoints", len(models), f"{len(models):,} to read or make")
        for name in models:
            self._checkpoint_tasks[name] = asyncio.create_task(
                self._checkpoint(self._matrix.model(name))
            )
        await self._show_estimate()
        async with asyncio.TaskGroup() as group:
            rows = [group.create_task(self._observe_row(row, find_row)) for row in self._plan.rows]
        await self._find_machine_facts()
        self.phases.end("cells")
        return Observed({cell: runs for row in rows for cell, runs in row.result().items()})

    @property
    def _run_text(self) -> str:
        return "twice in full" if self._order.level == "deep" else "twice"

    async def _show_estimate(self) -> None:
        """Show how many cells have captures of earlier runs, and how long the others will take."""
        captured = set() if self._order.fresh else await self._cells_with_captures()
        all_cells = self._plan.cells
        if captured:
            message = (
                f"{len(captured):,} of {plural(len(all_cells), 'cell')} known from an earlier run"
            )
            self.progress.note(message)
        new = [str(cell) for cell in all_cells if cell not in captured]
        self._n_new_cells = len(new)
        if line := self._price([cell for cell in all_cells if cell not in captured]):
            self.progress.note(line)
        level = self._order.level
        estimate = costs.estimate(costs.read(self._root), new, self._n_slots, level)
        if estimate is not None:
            self.progress.expect(estimate)
            remaining = duration(estimate.seconds)
            self.progress.note(f"about {remaining} for the new cells, estimated from earlier runs")
        elif new:
            self.progress.note("no earlier run at this level to estimate the minutes from")

    def _price(self, new: Sequence[CellId]) -> str:
        """Return a line about what the new cells cost; the minutes follow from earlier runs."""
        sizes = {name: self._known_size(name) for name in dict.fromkeys(c.model for c in new)}
        models = {name: self._matrix.model(name) for name in sizes}
        priced = [
            price.PricedCell(model, sizes[cell.model], cells.tries_usage(cell, model))
            for cell in new
            for model in [models[cell.model]]
        ]
        return price.described(priced, self._order.level, sweep=self._order.sweep)

    def _known_size(self, model: str) -> int | None:
        """Return the bytes of a checkpoint; None for one on the hub, or one that is to be made."""
        spec = self._matrix.model(model)
        if spec.path is not None:
            return size_of(Path(self._matrix.path).parent / spec.path)
        task = self._checkpoint_tasks[model]
        if not task.done() or task.cancelled() or task.exception():
            return None
        return size_of(Path(task.result().source))

    async def _cells_with_captures(self) -> set[CellId]:
        """Return the cells that have captures, if their checkpoints are ready in time."""
        if not (self._root / "captures").exists():
            return set()
        # a checkpoint still to be made has no captures, and hashing a new folder may take long
        await asyncio.wait(self._checkpoint_tasks.values(), timeout=_MAX_WAIT_FOR_CHECKPOINTS)
        captured = set()
        for row in self._plan.rows:
            task = self._checkpoint_tasks[row.model]
            if task.done() and not task.exception() and (paths := await self._paths_of(row)):
                model = self._matrix.model(row.model)
                captured |= {
                    cell for cell, pair in paths.items() if self._runner.are_captured(pair, model)
                }
        return captured

    async def _observe_row(
        self, row: PlannedRow, find_row: FindRow | None
    ) -> Mapping[CellId, LazyRuns]:
        """Return the captures of a row's cells; for a cached row, functions that read them."""
        paths = await self._paths_of(row) if find_row is not None else None
        if find_row is not None and paths and (cached := find_row(row, paths)) is not None:
            for cell in row.cells:
                self.progress.done(cell, cached.outcomes[cell.stack][0])
            await self._share_captures(row, paths)
            self._report_failures(row, cached.outcomes)
            return {cell: partial(self._runner.read, pair) for cell, pair in paths.items()}
        async with asyncio.TaskGroup() as group:
            tasks = {cell: group.create_task(self._observe(cell)) for cell in row.cells}
        captures = {cell: task.result() for cell, task in tasks.items()}
        self._report_failures(row, {cell.stack: outcome(runs) for cell, runs in captures.items()})
        return captures

    async def _share_captures(
        self, row: PlannedRow, paths: Mapping[CellId, tuple[Path, Path]]
    ) -> None:
        """Push the captures of a cached row to the shared store."""
        if self._sharing is None:
            return
        checkpoint = await asyncio.shield(self._checkpoint_tasks[row.model])
        for pair in paths.values():
            with contextlib.suppress(CaptureError):
                await self._runner.share(checkpoint, pair[0].parent, self._runner.read(pair))

    def _report_failures(self, row: PlannedRow, outcomes: Mapping[str, tuple[str, str]]) -> None:
        """Show the failures of a model, once all of its rows have ended.

        A failure that all cells of the model share is then shown once, as a failure of the model.
        """
        ended = self._outcomes.setdefault(row.model, {})
        ended |= {cell: outcomes[cell.stack] for cell in row.cells}
        if len(ended) == sum(len(r.cells) for r in self._plan.rows if r.model == row.model):
            for line in failures.lines(ended):
                self.progress.failure(line)

    def threads_of(self, row: PlannedRow) -> int:
        """Return the threads of the jobs of a row's cells; 1 without a checkpoint."""
        checkpoint = self.checkpoints.get(row.model)
        if checkpoint is None:
            return 1
        return threads_of(self._matrix.model(row.model), checkpoint, row.variant)

    async def _paths_of(self, row: PlannedRow) -> dict[CellId, tuple[Path, Path]] | None:
        """Return the paths of a row's captures; None without a stack or a pinned checkpoint."""
        if any(self.stack_of(cell) is None for cell in row.cells):
            return None
        try:
            checkpoint = await asyncio.shield(self._checkpoint_tasks[row.model])
        except BuildFailed:
            return None
        if not checkpoint.pinned:
            return None
        model = self._matrix.model(row.model)
        return {
            cell: self._runner.paths(cell, model, checkpoint, stack)
            for cell in row.cells
            if (stack := self.stack_of(cell)) is not None
        }

    def stack_of(self, cell: CellId) -> Stack | None:
        """Return the stack of a cell, with the packages of its model; None if there is none."""
        return self._stack_for(cell.model, cell.stack)

    def _stack_for(self, model: str, stack: str) -> Stack | None:
        packages = self._matrix.model(model).packages
        return self.extended.get((stack, packages)) if packages else self.stacks.get(stack)

    def _process_for(self, model: str, stack: str) -> StackProcess:
        return self._processes[stack, self._matrix.model(model).packages]

    def _built(self, cell: CellId) -> tuple[Stack, StackProcess]:
        """Return the stack and the process of a cell that ran."""
        stack = self.stack_of(cell)
        assert stack is not None
        return stack, self._process_for(cell.model, cell.stack)

    async def look_again(self, missing: Mapping[CellId, Iterable[str]]) -> dict[CellId, Runs]:
        """Run cells again to store the values of tensors that turned out to differ."""
        if not missing:
            return {}
        description = f"{plural(len(missing), 'cell')} again, to store the values that differ"
        jobs = [self._captures(cell, tuple(hashes)) for cell, hashes in missing.items()]
        return dict(zip(missing, await self._all("second look", description, jobs), strict=True))

    async def climb(
        self, questions: Mapping[CellId, Iterable[Ask]]
    ) -> dict[CellId, list[LadderFile]]:
        """Run cells on the precision ladder, one job for each question about a cell."""
        jobs = [(cell, ask) for cell, asks in questions.items() for ask in asks]
        description = f"{plural(len(questions), 'cell')} on the precision ladder"
        results = await self._all("third look", description, [self._climb(*job) for job in jobs])
        files: dict[CellId, list[LadderFile]] = {}
        for (cell, _), file in zip(jobs, results, strict=True):
            files.setdefault(cell, []).append(file)
        return files

    async def _all(
        self, phase: str, description: str, jobs: Sequence[Coroutine[Any, Any, T]]
    ) -> list[T]:
        """Run jobs side by side in a phase that counts them, and return their results in order."""
        with self.phases(phase, len(jobs), description) as count_job:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_count_when_done(job, count_job)) for job in jobs]
        return [task.result() for task in tasks]

    async def _climb(self, cell: CellId, ask: Ask) -> LadderFile:
        """Run one question about a cell on the ladder and return its result."""
        checkpoint = await asyncio.shield(self._checkpoint_tasks[cell.model])
        stack, process = self._built(cell)
        model = self._matrix.model(cell.model)
        return await self._climber.climb(cell, model, checkpoint, stack, process, ask)

    async def causes(self, questions: Mapping[CellId, TraceQuestions]) -> dict[CellId, Cause | str]:
        """Return where cells start to differ from their references, or why no trace shows it."""
        description = f"{plural(len(questions), 'pair')} traced to where the difference starts"
        jobs = [self._cause(cell, request) for cell, request in questions.items()]
        return dict(zip(questions, await self._all("causes", description, jobs), strict=True))

    async def _cause(self, cell: CellId, request: TraceQuestions) -> Cause | str:
        return await self._tracer.cause(*await self._pair(cell, request.reference), request)

    async def grafts(self, questions: Mapping[CellId, GraftQuestions]) -> dict[CellId, Graft | str]:
        """Return which pieces of the references restore cells' bits, or why none was tried."""
        description = f"pieces of the reference put into {plural(len(questions), 'cell')}"
        jobs = [self._graft(cell, request) for cell, request in questions.items()]
        return dict(zip(questions, await self._all("grafts", description, jobs), strict=True))

    async def _graft(self, cell: CellId, request: GraftQuestions) -> Graft | str:
        return await self._grafter.graft(*await self._pair(cell, request.reference), request)

    async def _pair(
        self, cell: CellId, reference: CellId
    ) -> tuple[TracedModel, TracedCell, TracedCell]:
        """Return the model and checkpoint of a pair, then the reference and the cell to trace."""
        checkpoint = await asyncio.shield(self._checkpoint_tasks[cell.model])
        traced_model = TracedModel(self._matrix.model(cell.model), checkpoint)
        reference_cell, candidate_cell = (
            TracedCell(side, *self._built(side)) for side in (reference, cell)
        )
        return traced_model, reference_cell, candidate_cell

    async def capsules(
        self, results: Sequence[CellResult], runs: Mapping[CellId, tuple[Capture, ...]]
    ) -> dict[CellId, Made]:
        """Return the files of a capsule for each of these cells, or why there is none.

        A cached capsule of the same captures is returned without running its scripts again.
        """
        capsule_cache = CapsuleCache(self._root, self.dependencies, fresh=self._order.fresh)
        places = {
            result.cell: await self._capsule_place(capsule_cache, result) for result in results
        }
        made = {
            cell: capsule
            for cell, (path, captures) in places.items()
            if (capsule := capsule_cache.find(path, captures)) is not None
        }
        new = [result for result in results if result.cell not in made]
        if new:
            save = {cell: partial(capsule_cache.keep, *place) for cell, place in places.items()}
            made |= await self._new_capsules(new, runs, save)
        return {result.cell: made[result.cell] for result in results}

    async def _capsule_place(
        self, capsule_cache: CapsuleCache, result: CellResult
    ) -> tuple[Path | None, tuple[Path, ...]]:
        """Return the path of a cell's cached capsule, if there can be one, and its captures."""
        pair = [cell for cell in (result.reference, result.cell) if cell is not None]
        if len(pair) < 2 or any(self.stack_of(cell) is None for cell in pair):
            return None, ()
        try:
            checkpoint = await asyncio.shield(self._checkpoint_tasks[result.cell.model])
        except BuildFailed:
            return None, ()
        model = self._matrix.model(result.cell.model)
        captures = tuple(
            path
            for cell in pair
            for path in self._runner.paths(cell, model, checkpoint, self._built(cell)[0])
        )
        environ = script_environment(self._environ, Path(), needs_hub=model.hub is not None)
        sides = (self._party(pair[0]), self._party(pair[1]))
        return capsule_cache.path(
            result, model, checkpoint, sides, self._machine_key, environ
        ), captures

    @property
    def _machine_key(self) -> Machine:
        facts = self.machine or {}
        return Machine(
            self._fingerprint, facts.get("platform", ""), facts.get("cpu_capability", "")
        )

    async def _new_capsules(
        self,
        results: Sequence[CellResult],
        runs: Mapping[CellId, tuple[Capture, ...]],
        save: Mapping[CellId, Callable[[Made], None]],
    ) -> dict[CellId, Made]:
        work = self._root / "capsules" / str(os.getpid())
        place = Place(self._environ)
        maker = Maker(work, self._store, self._probes, self._machine_key, place, self._slots)
        description = f"{plural(len(results), 'difference')} to reproduce without samebits"
        with self.phases("capsules", len(results), description) as count_job:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {
                        result.cell: group.create_task(
                            _count_when_done(
                                self._capsule(maker, result, runs, save[result.cell]), count_job
                            )
                        )
                        for result in results
                    }
            finally:
                place.close()
                shutil.rmtree(work, ignore_errors=True)
        return {cell: task.result() for cell, task in tasks.items()}

    async def _ensure_inputs_stored(self, capture: Capture) -> None:
        """Run a cell again if the values of its inputs, which a capsule needs, are not stored."""
        forwards = (capture.signals.forward or {}).values()
        inputs = {ref for facts in forwards for ref in facts.inputs.values()}
        if missing := sorted(ref.hash for ref in inputs if not self._store.has(ref)):
            await self._captures(capture.cell, tuple(missing))

    async def _capsule(
        self,
        maker: Maker,
        result: CellResult,
        runs: Mapping[CellId, tuple[Capture, ...]],
        save: Callable[[Made], None],
    ) -> Made:
        cell, reference = result.cell, result.reference
        assert reference is not None
        missing = [side.stack for side in (reference, cell) if self.stack_of(side) is None]
        if missing:
            return f"stack {missing[0]} could not be built"
        n_lost = self._n_lost
        await asyncio.gather(
            *(self._ensure_inputs_stored(runs[side][0]) for side in (reference, cell))
        )
        try:
            checkpoint = await asyncio.shield(self._checkpoint_tasks[cell.model])
            request = Wanted(
                result,
                runs[reference][0],
                runs[cell],
                self._matrix.model(cell.model),
                checkpoint,
                (self._party(reference), self._party(cell)),
            )
            made = await maker.make(request)
        except (CannotReproduce, BuildFailed) as reason:
            if isinstance(reason, ReproductionFailed):
                self.dependencies.mark_unrepeatable(f"the capsule of {cell} did not reproduce")
            elif isinstance(reason, CannotReproduce) and self._n_lost == n_lost:
                save(str(reason))
            return str(reason)
        except Exception as error:  # noqa: BLE001  a bug in samebits must not lose the report
            self.dependencies.mark_unrepeatable(f"the capsule of {cell} could not be made")
            return without_folders(f"it could not be made: {type(error).__name__}: {error}")
        save(made)
        return made

    @property
    def _n_lost(self) -> int:
        """Number of jobs of this run without a result; what depends on one may differ next time."""
        return sum(process.n_lost for process in self._processes.values())

    def _party(self, cell: CellId) -> CapsuleParty:
        stack, process = self._built(cell)
        python = self._matrix.stack(cell.stack).python
        return CapsuleParty(cell, stack, python, process)

    async def cross(self) -> tuple[CrossingsReport, ...]:
        """Save each model in every stack, and load each saved copy in every other stack."""
        rows = rows_to_cross(self._matrix, self._plan)
        if not rows:
            return ()
        models = plural(len(rows), "model")
        description = f"{models} saved by each stack and loaded by every other one"
        with self.phases("crossings", len(rows), description) as count_job:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_count_when_done(self._cross(row), count_job)) for row in rows
                ]
        return tuple(report for task in tasks if (report := task.result()) is not None)

    async def _cross(self, row: PlannedRow) -> CrossingsReport | None:
        """Return the crossings of one model; None without two stacks or without a checkpoint."""
        stacks = [stack for cell in row.cells if (stack := self.stack_of(cell)) is not None]
        try:
            checkpoint = await asyncio.shield(self._checkpoint_tasks[row.model])
        except BuildFailed:
            return None
        if len(stacks) < 2:
            return None
        parties = [CrossingStack(stack, self._process_for(row.model, stack.id)) for stack in stacks]
        subject = CrossedModel(self._matrix.model(row.model), row.variant, checkpoint)
        return await self._crosser.cross(subject, parties)

    async def train(
        self, cells: Sequence[CellId], *, values: bool = False, relations: bool = True
    ) -> dict[CellId, TrainingFile]:
        """Train cells for one step; with ``values`` in float64, too, and with stored tensors."""
        if not cells:
            return {}
        also = ", also in float64" if values else ""
        description = f"{plural(len(cells), 'cell')} trained for one step{also}"
        jobs = [self._train(cell, values=values, relations=relations) for cell in cells]
        name = "training in float64" if values else "training"
        return dict(zip(cells, await self._all(name, description, jobs), strict=True))

    async def _train(self, cell: CellId, *, values: bool, relations: bool) -> TrainingFile:
        checkpoint = await asyncio.shield(self._checkpoint_tasks[cell.model])
        stack, process = self._built(cell)
        model = self._matrix.model(cell.model)
        return await self._trainer.train(
            cell, model, checkpoint, stack, process, values=values, relations=relations
        )

    async def step_origins(
        self, questions: Mapping[CellId, StepQuestion]
    ) -> dict[CellId, StepOrigin | str]:
        """Return the first operation of each training step that differs, or why none is known."""
        if not questions:
            return {}
        description = f"{plural(len(questions), 'training step')} traced to where it diverges"
        jobs = [self._step_origin(cell, question) for cell, question in questions.items()]
        return dict(zip(questions, await self._all("step traces", description, jobs), strict=True))

    async def _step_origin(self, cell: CellId, question: StepQuestion) -> StepOrigin | str:
        pair = await self._pair(cell, question.reference)
        return await self._step_tracer.origin(*pair, question)

    async def step_grafts(
        self, questions: Mapping[CellId, StepQuestion]
    ) -> dict[CellId, StepGraft | str]:
        """Return which pieces of a reference's loss restore its step, or why none was tried."""
        if not questions:
            return {}
        description = (
            f"pieces of the reference's loss put into {plural(len(questions), 'training step')}"
        )
        jobs = [self._step_graft(cell, question) for cell, question in questions.items()]
        return dict(zip(questions, await self._all("step grafts", description, jobs), strict=True))

    async def _step_graft(self, cell: CellId, question: StepQuestion) -> StepGraft | str:
        pair = await self._pair(cell, question.reference)
        return await self._step_grafter.graft(*pair, question)

    async def train_by_trainer(
        self, cells: Sequence[CellId], *, values: bool = False
    ) -> dict[CellId, TrainerFile]:
        """Train cells by transformers' own Trainer; with ``values`` in float64, too."""
        if not cells:
            return {}
        also = ", also in float64" if values else ""
        description = f"{plural(len(cells), 'cell')} trained by Trainer{also}"
        stacks = await self._with_accelerate(cells)
        jobs = [self._train_by_trainer(cell, stacks, values=values) for cell in cells]
        name = "Trainer in float64" if values else "Trainer"
        return dict(zip(cells, await self._all(name, description, jobs), strict=True))

    async def _with_accelerate(
        self, cells: Sequence[CellId]
    ) -> dict[ProcessKey, ExtendedStack | PackagesError]:
        """Install accelerate beside the stacks of cells; the error says why there is none."""
        beside = {
            (cell.stack, self._matrix.model(cell.model).packages): self._built(cell)[0]
            for cell in cells
        }
        extended = await asyncio.gather(
            *(self._accelerated(stack, id) for (id, _), stack in beside.items())
        )
        return dict(zip(beside, extended, strict=True))

    async def _accelerated(self, stack: Stack, id: str) -> ExtendedStack | PackagesError:
        python = self._matrix.stack(id).python
        try:
            return await asyncio.to_thread(self._extend, stack, python, FOR_TRAINER)
        except (PackagesError, StackError, OSError) as error:
            self.dependencies.mark_unrepeatable(f"accelerate is not installed beside {id}")
            if isinstance(error, PackagesError):
                return error
            return PackagesError(without_folders(str(error)), contradicts=False)

    async def _train_by_trainer(
        self,
        cell: CellId,
        stacks: Mapping[ProcessKey, ExtendedStack | PackagesError],
        *,
        values: bool,
    ) -> TrainerFile:
        checkpoint = await asyncio.shield(self._checkpoint_tasks[cell.model])
        model = self._matrix.model(cell.model)
        stack = stacks[cell.stack, model.packages]
        if isinstance(stack, PackagesError):
            reason = str(stack).splitlines()[0]
            return TrainerFile(cell=cell, reason=f"accelerate is not there: {reason}")
        process = self._process_for(cell.model, cell.stack)
        return await self._trainer_runner.train(
            cell, model, checkpoint, stack, process, values=values
        )

    def keep_costs(self, finished: Finished | None) -> None:
        """Save the costs of this run's jobs; ``finished`` is None if the run was interrupted."""
        spending = [job for process in self._processes.values() for job in process.costs]
        recorded = costs.read(self._root)  # read now: another run may have written it since
        phase_seconds = self.phases.taken
        updated = costs.merged(
            recorded,
            spending,
            phase_seconds,
            self._n_slots,
            new=self._n_new_cells,
            finished=finished,
            level=self._order.level,
        )
        with contextlib.suppress(OSError):  # an estimate must not fail a run
            costs.write(self._root, updated)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """CPU seconds of this run's jobs by kind, the most expensive kind first."""
        totals: dict[str, tuple[int, float]] = {}
        for process in self._processes.values():
            for kind, (jobs, cpu) in process.spent.items():
                total = totals.get(kind, (0, 0.0))
                totals[kind] = (total[0] + jobs, total[1] + cpu)
        most_expensive = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
        return tuple(
            Spent(kind=k, jobs=jobs, cpu=round(cpu, 2)) for k, (jobs, cpu) in most_expensive
        )

    async def close(self) -> None:
        """End all processes and tasks."""
        self._stack_builder.end()
        self._package_builder.end()
        for task in self._checkpoint_tasks.values():
            task.cancel()
        await asyncio.gather(*self._checkpoint_tasks.values(), return_exceptions=True)
        await asyncio.gather(*(process.close() for process in self._processes.values()))
        self._crosser.close()
        for stack in (*self.stacks.values(), *self.extended.values()):
            shutil.rmtree(self._modules(stack), ignore_errors=True)
        _remove_old(self._root / "logs", f"*-{_ANY_RUN}.log")
        _remove_old(self._root / "modules", f"*-{_ANY_RUN}")

    async def _build_stacks(self) -> None:
        """Build the stacks of the plan, and stacks that are only needed to make a checkpoint."""
        recipes = [r for name in self._plan.models if (r := self._matrix.model(name).build)]
        needed = {*self._plan.stacks, *(r.stack for r in recipes if r.stack is not None)}
        if any(m.build and m.has_own_code for m in map(self._matrix.model, self._plan.models)):
            needed.add(self._whole.stacks[0])  # a shard's checkpoint is that of the whole run
        self.phases.begin("stacks", len(needed), f"{len(needed):,} to resolve and build")
        await asyncio.gather(
            *(self._build_and_show(spec) for spec in self._matrix.stacks if spec.id in needed)
        )
        unknown = {
            model.build.architecture
            for model in map(self._matrix.model, self._plan.models)
            # a stack's own list does not have what packages register
            if model.build and model.build.stack is None and not model.has_own_code
        }
        for spec in self._checkpoint_makers():
            # the oldest stack that knows an architecture makes its checkpoint, selected or not
            if unknown and spec.id not in needed:
                await self._build_and_show(spec)
            if spec.id in self.stacks:
                unknown -= set(self.stacks[spec.id].architectures)
        await self._add_packages()
        self.phases.end("stacks")

    async def _add_packages(self) -> None:
        """Install the packages of the plan's models beside every stack that was built."""
        listed = {self._matrix.model(name).packages for name in self._plan.models} - {()}
        keys = [(stack, packages) for stack in self.stacks for packages in sorted(listed)]
        await asyncio.gather(*(self._add_packages_to(*key) for key in keys))

    async def _add_packages_to(self, stack: str, packages: tuple[str, ...]) -> None:
        python = self._matrix.stack(stack).python
        try:
            extended = await asyncio.to_thread(self._extend, self.stacks[stack], python, packages)
        except PackagesError as error:
            self.not_extended[stack, packages] = error
        except (StackError, OSError) as error:
            text = without_folders(str(error))
            self.not_extended[stack, packages] = PackagesError(text, contradicts=False)
        else:
            self.extended[stack, packages] = extended
            return
        self.dependencies.mark_unrepeatable(f"{', '.join(packages)} is not installed in {stack}")

    def _checkpoint_makers(self) -> list[StackSpec]:
        """Return the stacks that may make checkpoints.

        Releases that ``--releases`` adds do not: they run the same checkpoints as the matrix.
        """
        return [spec for spec in self._matrix.stacks if not spec.between]

    async def _build_and_show(self, spec: StackSpec) -> None:
        self.progress.stack(spec.id, "resolving and building")
        await self._fetch_lock(spec)
        try:
            self.stacks[spec.id] = await asyncio.to_thread(self._build_stack, spec)
        except (StackError, OSError) as error:
            self.failures[spec.id] = without_folders(str(error))
            self.dependencies.mark_unrepeatable(f"stack {spec.id} could not be built")
            self.progress.stack(spec.id, "failed", is_busy=False)
            return
        finally:
            self.progress.advance("stacks")
        await self._share_lock(spec)
        release = f"transformers {self.stacks[spec.id].transformers}"
        self.progress.stack(spec.id, release, is_busy=False)

    async def _fetch_lock(self, spec: StackSpec) -> None:
        """Take the lock of a stack from a shared store, so that several machines run the same."""
        if spec.torch == SYSTEM:  # its lock is what this machine has
            return
        path = self._stack_builder.lock_path(spec)
        is_alone = self._order.merged is None and self._order.on is None
        keeps_own = path.exists() and is_alone
        if self._sharing is None or self._order.upgrade or keeps_own:
            return
        files = await asyncio.to_thread(self._sharing.read, f"locks/{path.name}")
        text = (files or {}).get(path.name, b"").decode("utf-8", "replace")
        if is_plain_lock(text) and text.encode() != _content_or_empty(path):
            replace(path, text)

    async def _share_lock(self, spec: StackSpec) -> None:
        """Push the lock of a stack; the store keeps the first one until a run upgrades it."""
        if spec.torch == SYSTEM:
            return
        path = self._stack_builder.lock_path(spec)
        if self._sharing is None or not path.exists():
            return
        push = self._sharing.write if self._order.upgrade else self._sharing.offer
        content = {path.name: path.read_bytes()}
        if is_plain_lock(content[path.name].decode("utf-8", "replace")):
            await asyncio.to_thread(push, f"locks/{path.name}", content)

    def _open_processes(self) -> None:
        needs_hub = any(self._matrix.model(name).hub for name in self._whole.models)
        stacks: dict[ProcessKey, Stack] = {(id, ()): stack for id, stack in self.stacks.items()}
        for key, stack in (stacks | self.extended).items():
            if key in self._processes:
                continue
            self.environment = probe_environment(
                self._environ,
                needs_hub=needs_hub,
                modules_cache=str(self._modules(stack)),
                kernels=self._order.kernels,
            )
            is_extended = isinstance(stack, ExtendedStack)
            own = {PACKAGES: stack.folder} if isinstance(stack, ExtendedStack) else {}
            name = f"{stack.id}-{stack.lock_digest[:12]}" if is_extended else stack.id
            self._processes[key] = StackProcess(
                stack.id,
                stack.python,
                self.environment | own,
                self._root / "logs" / f"{name}-{self._run}.log",
                self._slots,
                self._starter,
            )
            self._processes[key].on_step = self._show_step

    def _show_step(self, job: Mapping[str, Any], running: Running) -> None:
        """Show the progress of a job; a cell is shown until both of its runs have ended."""
        cell, kind = cell_of(job), str(job["kind"])
        if kind != "cell":
            name = f"{kind} of {cell or job.get('name', 'a checkpoint')}"
            self.progress.step(name, running.phase, running.step, running.of)
        elif running.phase:
            self.progress.step(cell, running.phase, running.step, running.of)

    def _modules(self, stack: Stack) -> Path:
        """Return the folder to which this run's process of a stack copies remote code."""
        return self._root / "modules" / f"{stack.lock_digest[:12]}-{self._run}"

    async def _checkpoint(self, model: ModelSpec) -> Checkpoint:
        """Return the model's checkpoint; a recipe is built first.

        Raises:
            BuildFailed: no stack knows the architecture, or the build failed.

        """
        try:
            if model.build is None:
                checkpoint = await self._found_checkpoint(model)
            else:
                checkpoint = await self._built_checkpoint(model)
        except BuildFailed:
            self.dependencies.mark_unrepeatable(f"{model.name} has no checkpoint")
            raise
        finally:
            self.progress.advance("checkpoints")
            self._n_checkpoints_done += 1
            if self._n_checkpoints_done == len(self._plan.models):
                self.phases.end("checkpoints")
        if not checkpoint.pinned:
            self.dependencies.mark_unrepeatable(
                f"{checkpoint.said} has no pinned revision, so its results are not reused"
            )
        checkpoint = await self._with_inputs(model, checkpoint)
        self.checkpoints[model.name] = checkpoint
        return checkpoint

    def _choosers(self, model: ModelSpec) -> list[tuple[Stack, StackProcess]]:
        """Return the stacks that may choose a model's inputs: the reference, then the oldest first.

        Releases that ``--releases`` adds come last, so that the inputs are those of the matrix.
        """
        return [
            (stack, self._process_for(model.name, spec.id))
            for spec in self._choosing(model)
            if (stack := self._stack_for(model.name, spec.id)) is not None
        ]

    def _choosing(self, model: ModelSpec) -> list[StackSpec]:
        rows = (row for row in self._whole.rows if row.model == model.name)
        selected = {cell.stack for row in rows for cell in row.cells}
        specs = [spec for spec in self._matrix.stacks if spec.id in selected]
        return sorted(specs, key=lambda spec: (spec.id != self._matrix.reference, spec.between))

    async def _with_inputs(self, model: ModelSpec, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with its inputs, which the same stack chooses in every shard.

        A shard builds the stacks that come first, until one of them can choose.
        """
        if self._whole == self._plan:
            return await self._feeder.choose(model, checkpoint, self._choosers(model))
        specs, fed = self._choosing(model), checkpoint
        for number, spec in enumerate(specs, 1):
            await self._ensure_built(spec)
            ids = {spec.id for spec in specs[:number]}
            choosers = [party for party in self._choosers(model) if party[0].id in ids]
            fed = await self._feeder.choose(model, checkpoint, choosers)
            if fed.inputs is not None and fed.inputs.record:
                break
        return fed

    async def _ensure_built(self, spec: StackSpec) -> None:
        async with self._building.setdefault(spec.id, asyncio.Lock()):
            if spec.id in self.stacks or spec.id in self.failures:
                return
            await self._build_and_show(spec)
            await self._add_packages()
            self._open_processes()

    async def _found_checkpoint(self, model: ModelSpec) -> Checkpoint:
        try:
            return await asyncio.to_thread(self._checkpoint_store.given, model)
        except PatchError as error:
            raise BuildFailed(str(error)) from error
        except OSError as error:
            where = Path(error.filename).name if error.filename else model.path
            msg = f"{where} of {model.path} cannot be read: {error.strerror or error}"
            raise BuildFailed(msg) from error

    async def _built_checkpoint(self, model: ModelSpec) -> Checkpoint:
        ordered = [
            stack
            for spec in self._checkpoint_makers()
            if (stack := self._stack_for(model.name, spec.id)) is not None
        ]
        builder = builder_of(model, ordered)
        if builder is None:
            raise BuildFailed(_no_builder(model, ordered))
        folder, sharing = self._checkpoint_store.folder(model, builder), self._sharing
        if sharing is not None and not folder.exists():
            await asyncio.to_thread(self._checkpoint_store.fetch, folder, sharing)
        if (existing := self._checkpoint_store.made(model, builder)) is not None:
            await self._share_checkpoint(folder)
            return existing
        if folder.exists() and self._checkpoint_store.made(model, builder) is None:
            # incomplete; checked again, because another run may have just made it
            shutil.rmtree(folder, ignore_errors=True)
        log = folder.with_suffix(".log")
        assert model.build is not None
        job = BuildJob(
            recipe=model.build,
            imports=model.imports,
            model_class=model.model_class,
            out=str(folder),
            log=str(log),
            timeout=model.timeout,
        )
        ended = await self._process_for(model.name, builder.id).run(job.as_json())
        if (made := self._checkpoint_store.made(model, builder)) is not None:
            await self._share_checkpoint(folder)
            return made
        msg = f"{builder.id} could not make the checkpoint: {ended.reason}\n{tail(log)}"
        raise BuildFailed(msg)

    async def _share_checkpoint(self, folder: Path) -> None:
        if self._sharing is not None:
            await asyncio.to_thread(self._checkpoint_store.share, folder, self._sharing)

    async def _observe(self, cell: CellId) -> Runs:
        runs = await self._captures(cell, started=lambda: self.progress.start(cell))
        self.progress.done(cell, outcome(runs)[0])
        return runs

    async def _captures(
        self,
        cell: CellId,
        hashes: tuple[str, ...] = (),
        started: Callable[[], None] = lambda: None,
    ) -> Runs:
        stack = self.stack_of(cell)
        if stack is None:
            return self._without_stack(cell)
        try:
            checkpoint = await asyncio.shield(self._checkpoint_tasks[cell.model])
        except BuildFailed as error:
            return cells.failed(cell, "build", str(error))
        model = self._matrix.model(cell.model)
        process = self._process_for(cell.model, cell.stack)
        return await self._runner.observe(cell, model, checkpoint, stack, process, hashes, started)

    def _without_stack(self, cell: CellId) -> Runs:
        """Return the captures of a cell whose stack, or whose packages, could not be installed."""
        if cell.stack in self.failures:
            return cells.failed(cell, "stack", self.failures[cell.stack])
        error = self.not_extended[cell.stack, self._matrix.model(cell.model).packages]
        if error.contradicts:
            return cells.absent(cell, str(error))
        return cells.failed(cell, "packages", str(error))

    async def _find_machine_facts(self) -> None:
        """Set the facts about the machine, from a stack's process or from an earlier run's file.

        If neither has them, a stack is started for them: a run with every capture cached has no
        process, and the run that made the captures may not have written the file yet.
        """
        path = self._root / f"machine-{self._fingerprint[:12]}.json"
        machines = (process.machine for process in self._processes.values())
        self.machine = next((machine for machine in machines if machine is not None), None)
        if self.machine is None:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                recorded = json.loads(seal.read(path))
                self.machine = recorded if isinstance(recorded, dict) else None
            if self.machine is not None:
                return
        for process in self._processes.values():
            self.machine = self.machine or await process.facts()
        if self.machine is not None:
            self._store.write_json(path, json.dumps(self.machine))


_ANY_RUN = "[0-9a-f]" * 12


def _content_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _remove_old(folder: Path, pattern: str) -> None:
    """Remove the leftovers of runs from ``folder`` that are older than ``UNUSED`` seconds."""
    cutoff = time.time() - UNUSED
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < cutoff:
                remove(path)


def outcome(runs: Sequence[Capture]) -> tuple[str, str]:
    """Return how a cell ended, and one line on why it failed or did not finish."""
    run = runs[0]
    if run.unfinished is not None:
        return run.status, without_folders(describe_end(run.unfinished))
    failure = run.raised
    if failure is None:
        return run.status, ""
    raised = failure.type != cells.NOT_STARTED
    line = f"{failure.phase}: {failure.type}: {failure.in_short}" if raised else failure.in_short
    return run.status, without_folders(line)


def _no_builder(model: ModelSpec, stacks: Sequence[Stack]) -> str:
    assert model.build is not None
    if model.build.stack is not None:
        return f"stack {model.build.stack}, which makes the checkpoint, could not be built"
    architectures = {name for stack in stacks for name in stack.architectures}
    hint = nearest(model.build.architecture, sorted(architectures))
    return f"no stack of the matrix knows the architecture {model.build.architecture!r}; {hint}"

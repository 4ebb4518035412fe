"""How does a plan become captures: stacks built, checkpoints made, cells run, all side by side."""

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
from samebits.base.digests import digest_of_file, machine_fingerprint
from samebits.base.errors import PatchError, StackError, nearest
from samebits.base.filestate import Ledger
from samebits.base.redaction import without_folders
from samebits.capsules.asking import Unasked, Unproved
from samebits.capsules.judging import Party as CapsuleParty
from samebits.capsules.kept import KeptCapsules
from samebits.capsules.maker import Machine, Maker, Wanted
from samebits.capsules.running import Place, script_environment
from samebits.compare.pair import ended as how_it_ended
from samebits.compare.phases import best_first
from samebits.jobs import cells
from samebits.jobs import trace as tracing
from samebits.jobs.cells import CellRunner
from samebits.jobs.checkpoints import Checkpoint, Checkpoints, builder_of
from samebits.jobs.crossings import UNUSED, Crosser, Party, Subject, remove, rows_to_cross
from samebits.jobs.graft import Grafter
from samebits.jobs.inputs import Feeder
from samebits.jobs.ladder import Climber
from samebits.jobs.trace import Tracer
from samebits.records.report import Spent
from samebits.stacks import costs
from samebits.stacks.build import Stack, StackBuilder, probes_digest
from samebits.stacks.environment import probe_environment
from samebits.stacks.probes import PROBES
from samebits.stacks.process import StackProcess, cell_of, start_process, tail
from samebits.terminal import failures
from samebits.terminal.progress import Phases
from samebits.text.numbers import duration, plural

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from samebits.capsules.kept import Made
    from samebits.grafts.questions import Asked as ToGraft
    from samebits.ladder.asking import Ask
    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix, ModelSpec, StackSpec
    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult
    from samebits.records.crossing import CrossingsReport
    from samebits.records.graft import Graft
    from samebits.records.ids import CellId
    from samebits.records.ladder import LadderFile
    from samebits.records.trace import Cause
    from samebits.stacks.costs import Finished
    from samebits.stacks.process import Running, Starter
    from samebits.storage.store import Store
    from samebits.terminal.progress import Progress
    from samebits.trace.question import Asked

Runs = tuple["Capture", "Capture"]
Late = Union[Runs, "Callable[[], Runs]"]
"""Captures, or what reads them."""


class KnownRow(Protocol):
    """A row of which an earlier run left all that there is to say."""

    @property
    def outcomes(self) -> Mapping[str, tuple[str, str]]:
        """How each stack's cell ended, and why it failed."""


Known = Callable[["PlannedRow", "dict[CellId, tuple[Path, Path]]"], "KnownRow | None"]
"""Says what is known of a row whose captures lie at these paths."""


class Observed(Mapping["CellId", Runs]):
    """The captures of every cell, the one that is compared first; some are read when needed."""

    def __init__(self, found: dict[CellId, Late]) -> None:
        self._found = found

    def __getitem__(self, cell: CellId) -> Runs:
        found = self._found[cell]
        if callable(found):
            found = self._found[cell] = found()
        first, second = best_first(found)
        return first, second

    def __iter__(self) -> Iterator[CellId]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


T = TypeVar("T")
_SURVEY = 2.0
"""Seconds for which a run waits for checkpoints before it tells how many cells have captures."""


async def _counted(job: Coroutine[Any, Any, T], ended: Callable[[], None]) -> T:
    """Run a job and count it as ended, whatever it ends with."""
    try:
        return await job
    finally:
        ended()


class BuildFailed(Exception):  # noqa: N818  the cells of the model say it, the run goes on
    """A checkpoint could not be made; the message says why."""


class Laboratory:
    """Everything that a run shares: the folder of work, the slots, the stacks' processes."""

    def __init__(
        self,
        root: Path,
        matrix: Matrix,
        plan: Plan,
        store: Store,
        progress: Progress,
        environ: Mapping[str, str],
        *,
        fresh: bool = False,
        upgrade: bool = False,
        sweep: bool = False,
        slots: int | None = None,
        kernels: Mapping[str, str] | None = None,
        starter: Starter = start_process,
        builder: Callable[[StackSpec], Stack] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.ledger = ledger or Ledger()
        self.stacks: dict[str, Stack] = {}
        self.failures: dict[str, str] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.machine: dict[str, Any] | None = None
        self.environment: dict[str, str] = {}
        self.progress = progress
        self.phases = Phases(progress)
        self._n_new = self._n_read = 0
        self._outcomes: dict[str, dict[CellId, tuple[str, str]]] = {}
        self._fresh = fresh
        self._root = root
        self._store = store
        self._probes = probes_digest(PROBES)
        self._matrix = matrix
        self._plan = plan
        self._environ = environ
        self._starter = starter
        self._kernels = kernels
        self._fingerprint = machine_fingerprint(kernels)
        self._store = store
        # a process id is not unique: two containers may share the folder
        self._run = uuid.uuid4().hex[:12]
        self._n_slots = slots or len(os.sched_getaffinity(0))
        self._slots = asyncio.Semaphore(self._n_slots)
        maker = digest_of_file(PROBES / "samebits_probe" / "model" / "build.py")
        told, noted = (self._probes, self._fingerprint), self.ledger
        self._shelf = Checkpoints(root, Path(matrix.path).parent, maker, ledger=noted)
        self._runner = CellRunner(root, store, *told, fresh=fresh, sweep=sweep, ledger=noted)
        self._feeder = Feeder(root, self._probes, fresh=fresh, ledger=noted)
        self._tracer = Tracer(root, store, *told, fresh=fresh, ledger=noted)
        self._grafter = Grafter(root, *told, fresh=fresh, ledger=noted)
        self._climber = Climber(root, *told, fresh=fresh, ledger=noted)
        self._crosser = Crosser(root, store, *told, fresh=fresh, ledger=noted)
        self._processes: dict[str, StackProcess] = {}
        stack_builder = StackBuilder(
            root, environ, exclude_newer=matrix.exclude_newer, upgrade=upgrade, ledger=noted
        )
        self._stack_builder = stack_builder
        self._build_stack = builder or stack_builder.build
        self._made: dict[str, asyncio.Task[Checkpoint]] = {}

    async def observe(self, known: Known | None = None) -> Mapping[CellId, Runs]:
        """Build what is needed and return the captures of every cell of the plan.

        Those of a row that ``known`` knows are there, and are read when somebody asks for them.
        """
        await self._build_stacks()
        self._open_processes()
        models, n_cells = self._plan.models, len(self._plan.cells)
        said = f"{plural(n_cells, 'cell')} of {plural(len(models), 'model')}, each run twice"
        self.phases.begin("cells", n_cells, said)
        self.phases.begin("checkpoints", len(models), f"{len(models):,} to read or make")
        for name in models:
            self._made[name] = asyncio.create_task(self._checkpoint(self._matrix.model(name)))
        await self._survey()
        async with asyncio.TaskGroup() as group:
            rows = [group.create_task(self._observe_row(row, known)) for row in self._plan.rows]
        await self._remember_machine()
        self.phases.end("cells")
        return Observed({cell: runs for row in rows for cell, runs in row.result().items()})

    async def _survey(self) -> None:
        """Tell how many cells have captures of earlier runs, and how long the others will take."""
        captured = set() if self._fresh else await self._captured()
        cells = self._plan.cells
        if captured:
            said = f"{len(captured):,} of {plural(len(cells), 'cell')} known from an earlier run"
            self.progress.note(said)
        needed = [str(cell) for cell in cells if cell not in captured]
        self._n_new = len(needed)
        expected = costs.estimate(costs.read(self._root), needed, self._n_slots)
        if expected is not None:
            self.progress.expect(expected)
            took = duration(expected.seconds)
            self.progress.note(f"about {took} for what is new, by what jobs took in earlier runs")

    async def _captured(self) -> set[CellId]:
        """Return the cells that have captures, as far as a short look at checkpoints tells it."""
        if not (self._root / "captures").exists():
            return set()
        # a checkpoint that has to be made has no captures; to read a new one takes as long as it is
        await asyncio.wait(self._made.values(), timeout=_SURVEY)
        found = set()
        for row in self._plan.rows:
            made = self._made[row.model]
            if made.done() and not made.exception() and (paths := await self._paths_of(row)):
                found |= {cell for cell, both in paths.items() if all(map(Path.exists, both))}
        return found

    async def _observe_row(self, row: PlannedRow, known: Known | None) -> Mapping[CellId, Late]:
        """Return the captures of a row's cells, or what reads them where the row is known."""
        paths = await self._paths_of(row) if known is not None else None
        if known is not None and paths and (kept := known(row, paths)) is not None:
            for cell in row.cells:
                self.progress.done(cell, kept.outcomes[cell.stack][0])
            self._report_failures(row, kept.outcomes)
            return {cell: partial(self._runner.read, both) for cell, both in paths.items()}
        async with asyncio.TaskGroup() as group:
            tasks = {cell: group.create_task(self._observe(cell)) for cell in row.cells}
        found = {cell: task.result() for cell, task in tasks.items()}
        self._report_failures(row, {cell.stack: outcome(runs) for cell, runs in found.items()})
        return found

    def _report_failures(self, row: PlannedRow, outcomes: Mapping[str, tuple[str, str]]) -> None:
        """Say what failed in a row; what is the same in every row of a model is said once.

        The lines wait for the model's last row, because a failure that each of its cells shares is
        the model's own.
        """
        said = self._outcomes.setdefault(row.model, {})
        said |= {cell: outcomes[cell.stack] for cell in row.cells}
        if len(said) == sum(len(r.cells) for r in self._plan.rows if r.model == row.model):
            for line in failures.lines(said):
                self.progress.failure(line)

    async def _paths_of(self, row: PlannedRow) -> dict[CellId, tuple[Path, Path]] | None:
        """Return where a row's captures lie; None if any cell has no stack or is not pinned."""
        if any(cell.stack not in self.stacks for cell in row.cells):
            return None
        try:
            checkpoint = await asyncio.shield(self._made[row.model])
        except BuildFailed:
            return None
        if not checkpoint.pinned:
            return None
        model = self._matrix.model(row.model)
        return {
            cell: self._runner.paths(cell, model, checkpoint, self.stacks[cell.stack])
            for cell in row.cells
        }

    async def look_again(self, wanted: Mapping[CellId, Iterable[str]]) -> dict[CellId, Runs]:
        """Run cells once more for the values of tensors that turned out to differ."""
        if not wanted:
            return {}
        said = f"{plural(len(wanted), 'cell')} once more for values that differ"
        with self.phases("second look", len(wanted), said) as ended:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    cell: group.create_task(_counted(self._captures(cell, tuple(hashes)), ended))
                    for cell, hashes in wanted.items()
                }
        return {cell: task.result() for cell, task in tasks.items()}

    async def climb(self, asked: Mapping[CellId, Iterable[Ask]]) -> dict[CellId, list[LadderFile]]:
        """Run cells on the precision ladder: one job for each thing that a cell is asked."""
        jobs = [(cell, ask) for cell, asks in asked.items() for ask in asks]
        said = f"{plural(len(asked), 'cell')} on the precision ladder"
        with self.phases("third look", len(jobs), said) as ended:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_counted(self._climb(*job), ended)) for job in jobs]
        found: dict[CellId, list[LadderFile]] = {}
        for (cell, _), task in zip(jobs, tasks, strict=True):
            found.setdefault(cell, []).append(task.result())
        return found

    async def _climb(self, cell: CellId, ask: Ask) -> LadderFile:
        """Return what one cell, which ran before, left on the ladder."""
        checkpoint = await asyncio.shield(self._made[cell.model])
        stack, process = self.stacks[cell.stack], self._processes[cell.stack]
        model = self._matrix.model(cell.model)
        return await self._climber.climb(cell, model, checkpoint, stack, process, ask)

    async def causes(self, asked: Mapping[CellId, Asked]) -> dict[CellId, Cause | str]:
        """Return where cells part from their references, or why tracing both does not say it."""
        said = f"{plural(len(asked), 'pair')} traced to where the difference starts"
        with self.phases("causes", len(asked), said) as ended:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    c: group.create_task(_counted(self._cause(c, a), ended))
                    for c, a in asked.items()
                }
        return {cell: task.result() for cell, task in tasks.items()}

    async def _cause(self, cell: CellId, asked: Asked) -> Cause | str:
        return await self._tracer.cause(*await self._pair(cell, asked.reference), asked)

    async def grafts(self, asked: Mapping[CellId, ToGraft]) -> dict[CellId, Graft | str]:
        """Return which pieces of their references give cells the same bytes, or why none was tried."""
        said = f"pieces of the reference put into {plural(len(asked), 'cell')}"
        with self.phases("grafts", len(asked), said) as ended:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    c: group.create_task(_counted(self._graft(c, a), ended))
                    for c, a in asked.items()
                }
        return {cell: task.result() for cell, task in tasks.items()}

    async def _graft(self, cell: CellId, asked: ToGraft) -> Graft | str:
        return await self._grafter.graft(*await self._pair(cell, asked.reference), asked)

    async def _pair(
        self, cell: CellId, reference: CellId
    ) -> tuple[tracing.Subject, tracing.Party, tracing.Party]:
        """Return what both cells are of, and what runs the reference and the cell."""
        checkpoint = await asyncio.shield(self._made[cell.model])
        subject = tracing.Subject(self._matrix.model(cell.model), checkpoint)
        one, other = (
            tracing.Party(of, self.stacks[of.stack], self._processes[of.stack])
            for of in (reference, cell)
        )
        return subject, one, other

    async def capsules(
        self, results: Sequence[CellResult], runs: Mapping[CellId, tuple[Capture, ...]]
    ) -> dict[CellId, Made]:
        """Return the files of a capsule for each of these cells, or why there is none.

        One that an earlier run made of the same is returned as it is: its scripts do not run again.
        """
        kept = KeptCapsules(self._root, self.ledger, fresh=self._fresh)
        places = {result.cell: await self._place_of(kept, result) for result in results}
        found = {
            cell: made
            for cell, (path, captures) in places.items()
            if (made := kept.find(path, captures)) is not None
        }
        new = [result for result in results if result.cell not in found]
        if new:
            keep = {cell: partial(kept.keep, *place) for cell, place in places.items()}
            found |= await self._new_capsules(new, runs, keep)
        return {result.cell: found[result.cell] for result in results}

    async def _place_of(
        self, kept: KeptCapsules, result: CellResult
    ) -> tuple[Path | None, tuple[Path, ...]]:
        """Return where the capsule of a cell is kept, if it is, and the captures that it is of."""
        pair = [cell for cell in (result.reference, result.cell) if cell is not None]
        if len(pair) < 2 or any(cell.stack not in self.stacks for cell in pair):
            return None, ()
        try:
            checkpoint = await asyncio.shield(self._made[result.cell.model])
        except BuildFailed:
            return None, ()
        model = self._matrix.model(result.cell.model)
        captures = tuple(
            path
            for cell in pair
            for path in self._runner.paths(cell, model, checkpoint, self.stacks[cell.stack])
        )
        environ = script_environment(self._environ, Path(), needs_hub=model.hub is not None)
        sides = (self._party(pair[0]), self._party(pair[1]))
        return kept.path(result, model, checkpoint, sides, self._here, environ), captures

    @property
    def _here(self) -> Machine:
        facts = self.machine or {}
        return Machine(
            self._fingerprint, facts.get("platform", ""), facts.get("cpu_capability", "")
        )

    async def _new_capsules(
        self,
        results: Sequence[CellResult],
        runs: Mapping[CellId, tuple[Capture, ...]],
        keep: Mapping[CellId, Callable[[Made], None]],
    ) -> dict[CellId, Made]:
        work = self._root / "capsules" / str(os.getpid())
        place = Place(self._environ)
        maker = Maker(work, self._store, self._probes, self._here, place, self._slots)
        said = f"{plural(len(results), 'difference')} made to run alone"
        with self.phases("capsules", len(results), said) as ended:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {
                        result.cell: group.create_task(
                            _counted(self._capsule(maker, result, runs, keep[result.cell]), ended)
                        )
                        for result in results
                    }
            finally:
                place.close()
                shutil.rmtree(work, ignore_errors=True)
        return {cell: task.result() for cell, task in tasks.items()}

    async def _keep_fed(self, capture: Capture) -> None:
        """See that what a cell was fed can be read; nothing else reads it where both sides agree."""
        forwards = (capture.signals.forward or {}).values()
        fed = {ref for facts in forwards for ref in facts.inputs.values()}
        if gone := sorted(ref.hash for ref in fed if not self._store.has(ref)):
            await self._captures(capture.cell, tuple(gone))

    async def _capsule(
        self,
        maker: Maker,
        result: CellResult,
        runs: Mapping[CellId, tuple[Capture, ...]],
        keep: Callable[[Made], None],
    ) -> Made:
        cell, reference = result.cell, result.reference
        assert reference is not None
        missing = [of.stack for of in (reference, cell) if of.stack not in self.stacks]
        if missing:
            return f"stack {missing[0]} could not be built"
        n_lost = self._n_lost
        await asyncio.gather(*(self._keep_fed(runs[of][0]) for of in (reference, cell)))
        try:
            checkpoint = await asyncio.shield(self._made[cell.model])
            wanted = Wanted(
                result,
                runs[reference][0],
                runs[cell],
                self._matrix.model(cell.model),
                checkpoint,
                (self._party(reference), self._party(cell)),
            )
            made = await maker.make(wanted)
        except (Unasked, BuildFailed) as reason:
            if isinstance(reason, Unproved):
                self.ledger.unsettle(f"the capsule of {cell} did not reproduce")
            elif isinstance(reason, Unasked) and self._n_lost == n_lost:
                keep(str(reason))
            return str(reason)
        except Exception as error:  # noqa: BLE001  a defect of ours must not cost the report
            self.ledger.unsettle(f"the capsule of {cell} could not be made")
            return without_folders(f"making it failed: {type(error).__name__}: {error}")
        keep(made)
        return made

    @property
    def _n_lost(self) -> int:
        """Jobs of this run that left nothing: what follows from one may come out otherwise."""
        return sum(process.n_lost for process in self._processes.values())

    def _party(self, cell: CellId) -> CapsuleParty:
        stack = self.stacks[cell.stack]
        python = self._matrix.stack(cell.stack).python
        return CapsuleParty(cell, stack, python, self._processes[cell.stack])

    async def cross(self) -> tuple[CrossingsReport, ...]:
        """Save each model in every stack that was observed, and load that in every other one."""
        rows = rows_to_cross(self._matrix, self._plan)
        if not rows:
            return ()
        models = plural(len(rows), "model")
        said = f"{models} saved by each stack and loaded by every other one"
        with self.phases("crossings", len(rows), said) as ended:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_counted(self._cross(row), ended)) for row in rows]
        return tuple(found for task in tasks if (found := task.result()) is not None)

    async def _cross(self, row: PlannedRow) -> CrossingsReport | None:
        """Return what became of one model; None if there are no two stacks or no checkpoint."""
        stacks = [self.stacks[cell.stack] for cell in row.cells if cell.stack in self.stacks]
        try:
            checkpoint = await asyncio.shield(self._made[row.model])
        except BuildFailed:
            return None
        if len(stacks) < 2:
            return None
        parties = [Party(stack, self._processes[stack.id]) for stack in stacks]
        subject = Subject(self._matrix.model(row.model), row.variant, checkpoint)
        return await self._crosser.cross(subject, parties)

    def keep_costs(self, finished: Finished | None) -> None:
        """Leave what the jobs of this run took to the next one; ``finished`` is None if it did not."""
        spent = [job for process in self._processes.values() for job in process.costs]
        before = costs.read(self._root)  # another run may have written it meanwhile
        taken = self.phases.taken
        left = costs.merged(before, spent, taken, self._n_slots, new=self._n_new, finished=finished)
        with contextlib.suppress(OSError):  # an estimate is not worth a run
            costs.write(self._root, left)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """What the jobs of this run took, by kind, the dearest first."""
        found: dict[str, tuple[int, float]] = {}
        for process in self._processes.values():
            for kind, (jobs, cpu) in process.spent.items():
                before = found.get(kind, (0, 0.0))
                found[kind] = (before[0] + jobs, before[1] + cpu)
        dearest = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
        return tuple(Spent(kind=k, jobs=jobs, cpu=round(cpu, 2)) for k, (jobs, cpu) in dearest)

    async def close(self) -> None:
        """End all processes and tasks."""
        self._stack_builder.end()
        for task in self._made.values():
            task.cancel()
        await asyncio.gather(*self._made.values(), return_exceptions=True)
        await asyncio.gather(*(process.close() for process in self._processes.values()))
        self._crosser.close()
        for stack in self.stacks.values():
            shutil.rmtree(self._modules(stack), ignore_errors=True)
        _remove_old(self._root / "logs", f"*-{_ANY_RUN}.log")
        _remove_old(self._root / "modules", f"*-{_ANY_RUN}")

    async def _build_stacks(self) -> None:
        """Build the stacks of the plan, and those that may have to make a checkpoint for it."""
        recipes = [r for name in self._plan.models if (r := self._matrix.model(name).build)]
        wanted = {*self._plan.stacks, *(r.stack for r in recipes if r.stack is not None)}
        self.phases.begin("stacks", len(wanted), f"{len(wanted):,} to resolve and build")
        await asyncio.gather(
            *(self._build_one(spec) for spec in self._matrix.stacks if spec.id in wanted)
        )
        unknown = {recipe.architecture for recipe in recipes if recipe.stack is None}
        for spec in self._makers():
            # the oldest that knows an architecture makes its checkpoint, selected or not
            if unknown and spec.id not in wanted:
                await self._build_one(spec)
            if spec.id in self.stacks:
                unknown -= set(self.stacks[spec.id].architectures)
        self.phases.end("stacks")

    def _makers(self) -> list[StackSpec]:
        """Return the stacks that make checkpoints, so that a scan is of the same as the matrix."""
        return [spec for spec in self._matrix.stacks if not spec.between]

    async def _build_one(self, spec: StackSpec) -> None:
        self.progress.stack(spec.id, "resolving and building")
        try:
            self.stacks[spec.id] = await asyncio.to_thread(self._build_stack, spec)
        except (StackError, OSError) as error:
            self.failures[spec.id] = without_folders(str(error))
            self.ledger.unsettle(f"stack {spec.id} could not be built")
            self.progress.stack(spec.id, "failed")
            return
        finally:
            self.progress.advance("stacks")
        self.progress.stack(spec.id, f"transformers {self.stacks[spec.id].transformers}")

    def _open_processes(self) -> None:
        needs_hub = any(self._matrix.model(name).hub for name in self._plan.models)
        for stack in self.stacks.values():
            self.environment = probe_environment(
                self._environ,
                needs_hub=needs_hub,
                modules_cache=str(self._modules(stack)),
                kernels=self._kernels,
            )
            log = self._root / "logs" / f"{stack.id}-{self._run}.log"
            self._processes[stack.id] = StackProcess(
                stack.id,
                stack.python,
                self.environment,
                log,
                self._slots,
                self._starter,
                self._n_slots,
            )
            self._processes[stack.id].on_step = self._step

    def _step(self, job: Mapping[str, Any], running: Running) -> None:
        """Show how far a job is; a cell is shown until both of its runs have ended."""
        cell, kind = cell_of(job), str(job["kind"])
        if kind != "cell":
            name = f"{kind} of {cell or job.get('name', 'a checkpoint')}"
            self.progress.step(name, running.phase, running.step, running.of)
        elif running.phase:
            self.progress.step(cell, running.phase, running.step, running.of)

    def _modules(self, stack: Stack) -> Path:
        """Return where this run's process of a stack copies remote code."""
        return self._root / "modules" / f"{stack.lock_digest[:12]}-{self._run}"

    async def _checkpoint(self, model: ModelSpec) -> Checkpoint:
        """Return the model's checkpoint, made first if it is a recipe.

        Raises:
            BuildFailed: no stack knows the architecture, or the one that does failed.

        """
        try:
            if model.build is None:
                found = await self._given_checkpoint(model)
            else:
                found = await self._made_checkpoint(model)
        except BuildFailed:
            self.ledger.unsettle(f"{model.name} has no checkpoint")
            raise
        finally:
            self.progress.advance("checkpoints")
            self._n_read += 1
            if self._n_read == len(self._plan.models):
                self.phases.end("checkpoints")
        if not found.pinned:
            self.ledger.unsettle(f"{found.said} may be another model tomorrow")
        found = await self._feeder.choose(model, found, self._choosers(model))
        self.checkpoints[model.name] = found
        return found

    def _choosers(self, model: ModelSpec) -> list[tuple[Stack, StackProcess]]:
        """Return the stacks that may choose what a model is fed: the reference, then by age.

        Releases that a scan adds come last, so that it feeds what the matrix does.
        """
        rows = (row for row in self._plan.rows if row.model == model.name)
        selected = {cell.stack for row in rows for cell in row.cells} & self.stacks.keys()
        specs = [spec for spec in self._matrix.stacks if spec.id in selected]
        specs.sort(key=lambda spec: (spec.id != self._matrix.reference, spec.between))
        return [(self.stacks[spec.id], self._processes[spec.id]) for spec in specs]

    async def _given_checkpoint(self, model: ModelSpec) -> Checkpoint:
        try:
            return await asyncio.to_thread(self._shelf.given, model)
        except PatchError as error:
            raise BuildFailed(str(error)) from error
        except OSError as error:
            where = Path(error.filename).name if error.filename else model.path
            msg = f"{where} of {model.path} cannot be read: {error.strerror or error}"
            raise BuildFailed(msg) from error

    async def _made_checkpoint(self, model: ModelSpec) -> Checkpoint:
        ordered = [self.stacks[s.id] for s in self._makers() if s.id in self.stacks]
        builder = builder_of(model, ordered)
        if builder is None:
            raise BuildFailed(_no_builder(model, ordered))
        if (there := self._shelf.made(model, builder)) is not None:
            return there
        folder = self._shelf.folder(model, builder)
        if folder.exists() and self._shelf.made(model, builder) is None:
            # torn, and in the way of what is made; another run may have made it just now
            shutil.rmtree(folder, ignore_errors=True)
        log = folder.with_suffix(".log")
        assert model.build is not None
        job = {
            "kind": "build",
            "recipe": model.build.model_dump(mode="json"),
            "out": str(folder),
            "log": str(log),
            "timeout": model.timeout,
        }
        ended = await self._processes[builder.id].run(job)
        if (made := self._shelf.made(model, builder)) is not None:
            return made
        msg = f"{builder.id} could not make the checkpoint: {ended.reason}\n{tail(log)}"
        raise BuildFailed(msg)

    async def _observe(self, cell: CellId) -> Runs:
        runs = await self._captures(cell, started=lambda: self.progress.start(cell))
        self.progress.done(cell, outcome(runs)[0])
        return runs

    async def _captures(
        self,
        cell: CellId,
        wanted: tuple[str, ...] = (),
        started: Callable[[], None] = lambda: None,
    ) -> Runs:
        stack = self.stacks.get(cell.stack)
        if stack is None:
            return cells.failed(cell, "stack", self.failures[cell.stack])
        try:
            checkpoint = await asyncio.shield(self._made[cell.model])
        except BuildFailed as error:
            return cells.failed(cell, "build", str(error))
        model = self._matrix.model(cell.model)
        process = self._processes[cell.stack]
        return await self._runner.observe(cell, model, checkpoint, stack, process, wanted, started)

    async def _remember_machine(self) -> None:
        """Take the machine's facts from a stack that ran, or from the last run on this machine.

        A run that found every capture may not find them: another one may be about to write them.
        """
        path = self._root / f"machine-{self._fingerprint[:12]}.json"
        machines = (process.machine for process in self._processes.values())
        self.machine = next((machine for machine in machines if machine is not None), None)
        if self.machine is None:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                read = json.loads(seal.read(path))
                self.machine = read if isinstance(read, dict) else None
            if self.machine is not None:
                return
        for process in self._processes.values():
            self.machine = self.machine or await process.facts()
        if self.machine is not None:
            self._store.write_json(path, json.dumps(self.machine))


_ANY_RUN = "[0-9a-f]" * 12


def _remove_old(folder: Path, pattern: str) -> None:
    """Remove what runs left in ``folder`` that ended long ago, or were killed."""
    oldest = time.time() - UNUSED
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                remove(path)


def outcome(runs: Sequence[Capture]) -> tuple[str, str]:
    """Return how a cell ended, and in one line what failed or why it did not finish."""
    run = runs[0]
    if run.unfinished is not None:
        return run.status, without_folders(how_it_ended(run.unfinished))
    failure = run.raised
    if failure is None:
        return run.status, ""
    raised = failure.type != cells.NOT_STARTED
    line = f"{failure.phase}: {failure.type}: {failure.in_short}" if raised else failure.in_short
    return run.status, without_folders(line)


def _no_builder(model: ModelSpec, stacks: Sequence[Stack]) -> str:
    assert model.build is not None
    if model.build.stack is not None:
        return f"stack {model.build.stack}, which is to make the checkpoint, could not be built"
    known = {name for stack in stacks for name in stack.architectures}
    hint = nearest(model.build.architecture, sorted(known))
    return f"no stack of the matrix knows the architecture {model.build.architecture!r}; {hint}"

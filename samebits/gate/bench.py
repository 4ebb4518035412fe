"""The processes that observe models for a lock: the project's interpreter and, if needed, a stack.

It is a small run of a matrix: one model, one variant, one or two cells.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from samebits.base.digests import machine_fingerprint
from samebits.base.workfolder import keep_from_git
from samebits.compare.signals import wanted
from samebits.diagnose import verdict
from samebits.diagnose.deciding import with_deciding
from samebits.jobs.cache import JobCache
from samebits.jobs.cells import CellRunner
from samebits.jobs.checkpoints import Checkpoint, Checkpoints
from samebits.jobs.common import ReadyCell
from samebits.jobs.inputs import Feeder
from samebits.jobs.lab import Lab
from samebits.jobs.ladder import climb
from samebits.ladder.asking import Ask
from samebits.ladder.verdicts import judge_by_ladder, unmeasured
from samebits.matrix.spec import ModelSpec
from samebits.records.capture import Capture
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId
from samebits.records.ladder import LadderFile
from samebits.stacks import contents
from samebits.stacks.build import Stack, StackBuilder, environment_folder, probes_digest
from samebits.stacks.environment import probe_environment
from samebits.stacks.installer import Commands, Installer, Run
from samebits.stacks.places import stacks_folder
from samebits.stacks.probes import PROBES, makers_digest
from samebits.stacks.process import StackProcess, Starter, start_process
from samebits.stacks.slots import Slots, usable_cores
from samebits.storage.store import Store
from samebits_wire.places import PROBE_PACKAGES_VARIABLE

Runs = tuple["Capture", "Capture"]


class Subject(NamedTuple):
    """One model in one variant, as one side loads it."""

    model: ModelSpec
    checkpoint: Checkpoint


class Side(NamedTuple):
    """An environment that observes models."""

    stack: Stack
    process: StackProcess
    runner: CellRunner
    lab: Lab
    feeder: Feeder

    def cell(self, model: ModelSpec) -> CellId:
        """Return the cell of a model on this side."""
        (variant,) = model.variants
        return CellId(model=model.name, variant=variant, stack=self.stack.id)

    async def with_inputs(self, subject: Subject) -> Subject:
        """Return a subject with the inputs that this side chooses for it."""
        parties = [(self.stack, self.process)]
        checkpoint = await self.feeder.choose(subject.model, subject.checkpoint, parties)
        return subject._replace(checkpoint=checkpoint)

    async def observe(self, subject: Subject, values: tuple[str, ...] = ()) -> Runs:
        """Return both runs of a model; ``values`` are hashes of tensors to store."""
        return await self.runner.observe(self._ready(subject), values)

    async def climb(self, subject: Subject, ask: Ask) -> LadderFile:
        """Return what a model computes on the precision ladder."""
        return await climb(self.lab, self._ready(subject), ask)

    def _ready(self, subject: Subject) -> ReadyCell:
        return ReadyCell(self.cell(subject.model), *subject, self.stack, self.process)


class Bench:
    """Owns the work folder and the processes of both sides."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        needs_hub: bool = False,
        kernels: Mapping[str, str] | None = None,
        starter: Starter | None = None,
        run: Run | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.root = root
        keep_from_git(root)
        self.store = Store(root)
        self._installer = Installer(environ, run=run or Commands(), say=say)
        self.builder = StackBuilder(root, self._installer, stacks=stacks_folder(root, environ))
        self.probes = probes_digest(PROBES)
        self.fingerprint = machine_fingerprint(kernels)
        self._environ = environ
        self._needs_hub = needs_hub
        self._kernels = kernels
        self._starter = starter or start_process
        self._run = uuid.uuid4().hex[:12]
        cores = usable_cores()
        self._slots = Slots(cores, cores)
        self._sides: list[Side] = []
        self._modules: list[Path] = []
        self._built: list[Path] = []

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the processes."""
        self._installer.end()
        await asyncio.gather(*(side.process.close() for side in self._sides))
        for folder in self._built:
            contents.record_bytecode(folder)
        for folder in self._modules:
            shutil.rmtree(folder, ignore_errors=True)

    def subject(self, model: ModelSpec) -> Subject:
        """Return a model with its files hashed; its inputs are still to be chosen."""
        checkpoints = Checkpoints(self.root, Path(), makers_digest())
        return Subject(model, checkpoints.given(model))

    def current(self, stack: Stack, version: str) -> Side:
        """Return the side of the user's environment.

        Nothing of an earlier run is used: packages in development change without a new version.
        Raises StackError if the probes' packages cannot be had.
        """
        folder = self.builder.probe_packages(stack.python, version)
        return self._side(stack, {PROBE_PACKAGES_VARIABLE: str(folder)}, fresh=True)

    def rebuilt(self, stack: Stack) -> Side:
        """Return the side of a stack that samebits built."""
        self._built.append(environment_folder(stack))
        return self._side(stack, {}, fresh=False)

    def _side(self, stack: Stack, more: Mapping[str, str], *, fresh: bool) -> Side:
        modules = self.root / "modules" / f"{stack.lock_digest[:12]}-{self._run}"
        self._modules.append(modules)
        environment = probe_environment(
            self._environ,
            needs_hub=self._needs_hub,
            modules_cache=str(modules),
            kernels=self._kernels,
        )
        log = self.root / "logs" / f"{stack.id}-{self._run}.log"
        process = StackProcess(
            stack.id, stack.python, {**environment, **more}, log, self._slots, self._starter
        )
        cache = JobCache(self.root, self.store, self.probes, self.fingerprint, fresh=fresh)
        side = Side(stack, process, CellRunner(cache), Lab(cache), Feeder(cache))
        self._sides.append(side)
        return side


async def compared(
    recorded: tuple[Side, Subject, Runs], current: tuple[Side, Subject, Runs], store: Store
) -> CellResult:
    """Return the verdict on the current side, with the rebuilt one as its reference.

    As in a run of a matrix, a second look fetches values, and the precision ladder decides which
    kind of difference it is.
    """
    sides = {side.cell(subject.model): (side, subject) for side, subject, _ in (recorded, current)}
    reference, cell = sides
    runs = {reference: recorded[2], cell: current[2]}

    def result() -> CellResult:
        return verdict.result(cell, runs[cell], runs[reference], store)

    first = result()
    missing: dict[CellId, tuple[str, ...]] = {}
    if first.signals:
        missing = dict(wanted(runs[reference][0], runs[cell][0], first.signals, store))
    rerun: dict[CellId, Runs] = {}
    for side_cell, hashes in missing.items():
        side, subject = sides[side_cell]
        rerun[side_cell] = await side.observe(subject, hashes)

    async def climb_all(asks: Mapping[CellId, list[Ask]]) -> dict[CellId, list[LadderFile]]:
        return {
            cell_id: [await sides[cell_id][0].climb(sides[cell_id][1], ask) for ask in listed]
            for cell_id, listed in asks.items()
        }

    results = await judge_by_ladder([result() if missing else first], runs, store, climb_all)
    gone: set[Any] = set()
    if missing:
        gone = {c for c, _ in wanted(runs[reference][0], runs[cell][0], results[0].signals, store)}
    return with_deciding(unmeasured(results[0], rerun, gone))

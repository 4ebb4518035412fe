"""The checkpoints of a run: found or made, with the inputs that a stack chooses for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from samebits.base.errors import MACHINE_ERRORS, PatchError, nearest
from samebits.jobs.checkpoints import Checkpoint, Checkpoints, builders_of
from samebits.jobs.inputs import Feeder
from samebits.matrix.spec import ModelSpec, StackSpec
from samebits.pipeline.scope import Scope
from samebits.pipeline.stacks import RunStacks
from samebits.stacks.build import Stack
from samebits.stacks.probes import makers_digest
from samebits.stacks.process import StackProcess, tail
from samebits_wire.atomic import remove
from samebits_wire.jobs import BuildJob

_NO_FORWARD = "NoForward"
_OWN_LIMITS = {"NoneMade", "TooLarge", _NO_FORWARD}
"""Exceptions of ``build: {auto: true}`` for a type that it knows no plan for; no release is to blame."""


class BuildFailed(Exception):  # noqa: N818  it fails the cells of the model, not the run
    """A checkpoint could not be made; the message says why."""

    def __init__(self, message: str, *, machine: bool = False) -> None:
        super().__init__(message)
        self.machine = machine
        """True if the machine or samebits is the reason: then its cells are not finished, instead of failed."""


class _NoPlan(BuildFailed):
    """samebits knows no plan to make the model in this release."""


class RunCheckpoints:
    """Finds or makes the checkpoint of every model of a run, all at the same time."""

    def __init__(self, scope: Scope, stacks: RunStacks, feeder: Feeder) -> None:
        self.known: dict[str, Checkpoint] = {}
        self.tasks: dict[str, asyncio.Task[Checkpoint]] = {}
        """Model -> the task that ends when its checkpoint is there."""
        self._scope = scope
        self._stacks = stacks
        self._feeder = feeder
        self._n_done = 0
        self._mending = asyncio.Lock()
        maker = makers_digest()
        self._made = Checkpoints(
            scope.root, scope.matrix_folder, maker, dependencies=scope.dependencies
        )

    def start(self) -> None:
        """Start with every model of the plan."""
        models = self._scope.plan.models
        self._scope.phases.begin("checkpoints", len(models), f"{len(models):,} to read or make")
        for name in models:
            model = self._scope.matrix.model(name)
            self.tasks[name] = asyncio.create_task(self._checkpoint(model))

    async def of(self, model: str) -> Checkpoint:
        """Return the checkpoint of a model, once it is there.

        Raises:
            BuildFailed: it cannot be made.

        """
        return await asyncio.shield(self.tasks[model])

    async def close(self) -> None:
        """End all tasks."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _checkpoint(self, model: ModelSpec) -> Checkpoint:
        """Return the model's checkpoint; a recipe is built first.

        Raises:
            BuildFailed: no stack knows the architecture, or the build failed.

        """
        try:
            if model.build is None:
                checkpoint = await self._found(model)
            else:
                checkpoint = await self._built(model)
        except BuildFailed:
            self._scope.dependencies.mark_unrepeatable(f"{model.name} has no checkpoint")
            raise
        finally:
            self._scope.progress.advance("checkpoints")
            self._n_done += 1
            if self._n_done == len(self.tasks):
                self._scope.phases.end("checkpoints")
        if not checkpoint.pinned:
            self._scope.dependencies.mark_unrepeatable(
                f"{checkpoint.shown_source} has no pinned revision, so its results are not reused"
            )
        if checkpoint.note:
            self._scope.progress.note(checkpoint.note)
        checkpoint = await self._with_inputs(model, checkpoint)
        self.known[model.name] = checkpoint
        return checkpoint

    def _choosers(self, model: ModelSpec) -> list[tuple[Stack, StackProcess]]:
        """Return the stacks that may choose a model's inputs: the reference, then the oldest first.

        Releases that ``--releases`` adds come last, so that the inputs are those of the matrix.
        """
        return [
            (stack, self._stacks.process(model.name, spec.id))
            for spec in self._choosing(model)
            if (stack := self._stacks.stack(model.name, spec.id)) is not None
        ]

    def _choosing(self, model: ModelSpec) -> list[StackSpec]:
        rows = self._scope.whole.rows_of.get(model.name, ())
        selected = {cell.stack for row in rows for cell in row.cells}
        specs = [spec for spec in self._scope.matrix.stacks if spec.id in selected]
        return sorted(
            specs, key=lambda spec: (spec.id != self._scope.matrix.reference, spec.between)
        )

    async def _with_inputs(self, model: ModelSpec, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with its inputs, which the same stack chooses in every shard.

        A shard builds the stacks that come first, until one of them can choose.
        """
        if len(self._scope.whole.cells) == len(self._scope.plan.cells):
            return await self._feeder.choose(model, checkpoint, self._choosers(model))
        specs, fed = self._choosing(model), checkpoint
        for number, spec in enumerate(specs, 1):
            await self._stacks.ensure(spec)
            ids = {spec.id for spec in specs[:number]}
            choosers = [party for party in self._choosers(model) if party[0].id in ids]
            fed = await self._feeder.choose(model, checkpoint, choosers)
            if fed.inputs is not None and fed.inputs.record:
                break
        return fed

    async def _found(self, model: ModelSpec) -> Checkpoint:
        try:
            return await asyncio.to_thread(self._made.given, model)
        except PatchError as error:
            raise BuildFailed(str(error)) from error
        except OSError as error:
            where = Path(error.filename).name if error.filename else model.path
            msg = f"{where} of {model.path} cannot be read: {error.strerror or error}"
            raise BuildFailed(msg, machine=error.errno in MACHINE_ERRORS) from error

    async def _built(self, model: ModelSpec) -> Checkpoint:
        ordered = [
            stack
            for spec in self._stacks.makers()
            if (stack := self._stacks.stack(model.name, spec.id)) is not None
        ]
        builders = builders_of(model, ordered)
        if not builders:
            raise BuildFailed(_no_builder(model, ordered))
        for builder in builders[:-1]:
            with contextlib.suppress(_NoPlan):  # a newer release may be able to
                return await self._built_by(builder, model)
        return await self._built_by(builders[-1], model)

    async def _built_by(self, builder: Stack, model: ModelSpec) -> Checkpoint:
        """Return the checkpoint that a stack makes, or made before.

        Raises:
            BuildFailed: it could not be made.

        """
        folder = self._made.folder(model, builder)
        if not folder.exists():
            await asyncio.to_thread(self._made.fetch, folder, self._scope.sharing)
        if (existing := self._made.made(model, builder)) is not None:
            await self._share(folder)
            return existing
        if folder.exists() and self._made.made(model, builder) is None:
            # incomplete; checked again, because another run may have just made it
            remove(folder)
        log = folder.with_suffix(".log")
        assert model.build is not None
        job: BuildJob = {
            "kind": "build",
            "recipe": model.build.as_json(),
            "imports": list(model.imports),
            "model_class": model.model_class,
            "out": str(folder),
            "log": str(log),
            "timeout": model.timeout,
        }
        ended = await self._stacks.process(model.name, builder.id).run(job)
        if (made := self._made.made(model, builder)) is not None:
            await self._share(folder)
            return made
        kind, _, reason = ended.said.partition(": ")
        if kind in _OWN_LIMITS:
            msg = f"samebits makes no tiny model of {model.build.architecture}: {reason}"
            msg += "" if kind == _NO_FORWARD else ". Name a checkpoint of it instead"
            raise _NoPlan(msg, machine=True)
        msg = f"{builder.id} could not make the checkpoint: "
        msg += ended.why if ended.stopped else f"{ended.reason}\n{tail(log)}"
        raise BuildFailed(msg, machine=ended.stopped)

    async def _share(self, folder: Path) -> None:
        await asyncio.to_thread(self._made.share, folder, self._scope.sharing)

    async def make_inputs_again(self, job: Mapping[str, Any]) -> None:
        """Make the inputs of a job's model again where a file of them is damaged or missing."""
        name = job["cell"]["model"] if "cell" in job else job.get("name")
        checkpoint = self.known.get(name) if name is not None else None
        if checkpoint is None:
            return
        async with self._mending:
            self._scope.store.forget()
            await self._with_inputs(self._scope.matrix.model(checkpoint.model), checkpoint)


def _no_builder(model: ModelSpec, stacks: Sequence[Stack]) -> str:
    assert model.build is not None
    if model.build.stack is not None:
        return f"environment {model.build.stack}, which makes the checkpoint, could not be built"
    architectures = {name for stack in stacks for name in stack.architectures}
    hint = nearest(model.build.architecture, sorted(architectures))
    return (
        f"no environment of the matrix knows the architecture {model.build.architecture!r}; {hint}"
    )

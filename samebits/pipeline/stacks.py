"""The stacks of a run: built, with the packages of models beside them, and their processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from samebits.base.errors import StackError, StackMachineError
from samebits.matrix.spec import StackSpec
from samebits.pipeline.scope import Scope
from samebits.stacks import contents, warm
from samebits.stacks.build import Stack, StackBuilder
from samebits.stacks.environment import probe_environment
from samebits.stacks.installer import Installer
from samebits.stacks.lock import is_plain_lock
from samebits.stacks.packages import (
    ExtendedStack,
    PackageBuilder,
    PackagesError,
    installations,
    variables_of,
    with_versions,
)
from samebits.stacks.places import stacks_folder
from samebits.stacks.process import Running, StackProcess, Starter, mend_nothing
from samebits.stacks.system import SYSTEM
from samebits_wire.atomic import read_whole, replace
from samebits_wire.folders import without_folders

T = TypeVar("T")
Key = tuple[str, tuple[str, ...]]
"""A stack, and the packages of a model that run beside it."""


class RunStacks:
    """Builds the stacks of a run and starts their processes."""

    def __init__(
        self,
        scope: Scope,
        starter: Starter,
        builder: Callable[[StackSpec], Stack] | None = None,
        extender: Callable[[Stack, str, Sequence[str], Sequence[str]], ExtendedStack] | None = None,
    ) -> None:
        self.built: dict[str, Stack] = {}
        self.failures: dict[str, StackError] = {}
        """Why stacks could not be built."""
        self.extended: dict[Key, ExtendedStack] = {}
        """Stacks with the packages of a model."""
        self.not_extended: dict[Key, PackagesError] = {}
        """Why there is no such stack."""
        self.processes: dict[Key, StackProcess] = {}
        self.environment: dict[str, str] = {}
        self.on_step: Callable[[Mapping[str, Any], Running], None] = lambda _job, _running: None
        """Shows the progress of a job."""
        self.mend: Callable[[Mapping[str, Any]], Awaitable[None]] = mend_nothing
        """Makes the files again that a job misses."""
        self._scope = scope
        self._starter = starter
        self._building: dict[str, asyncio.Lock] = {}
        self._keepers = warm.home(scope.environ) if scope.order.warm else None
        if scope.order.warm and self._keepers is None:
            scope.note(f"--warm has no effect: {warm.NEEDS}")
        order, matrix, environ = scope.order, scope.matrix, scope.environ
        self._installer = Installer(
            environ,
            exclude_newer=matrix.exclude_newer,
            upgrade=order.upgrade,
            max_age=order.lock_age,
            dependencies=scope.dependencies,
            project=order.uv_project,
            deep=order.level == "deep",
            say=scope.note,
        )
        self._stack_builder = StackBuilder(
            scope.root, self._installer, stacks=stacks_folder(scope.root, environ)
        )
        self._build_stack = builder or self._stack_builder.build
        packages = PackageBuilder(scope.root, scope.matrix_folder, self._installer)
        self._extend = extender or packages.extend

    def stack(self, model: str, stack: str) -> Stack | None:
        """Return a stack, with the packages of a model; None if there is none."""
        packages = self._scope.matrix.model(model).packages
        return self.extended.get((stack, packages)) if packages else self.built.get(stack)

    def process(self, model: str, stack: str) -> StackProcess:
        """Return the process of a stack that has the packages of a model."""
        return self.processes[stack, self._scope.matrix.model(model).packages]

    def end(self) -> None:
        """End what builds stacks."""
        self._installer.end()

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(process.close() for process in self.processes.values()))
        for key, process in self.processes.items():
            if process.machine is not None:
                for folder in installations(self.extended.get(key) or self.built[key[0]]):
                    await asyncio.to_thread(contents.record_bytecode, folder)
        for stack in (*self.built.values(), *self.extended.values()):
            shutil.rmtree(self.modules(stack), ignore_errors=True)

    async def build(self) -> None:
        """Build the stacks of the plan, and stacks that are only needed to make a checkpoint.

        Then start their processes.
        """
        recipes = [
            r for name in self._scope.plan.models if (r := self._scope.matrix.model(name).build)
        ]
        needed = {*self._scope.plan.stacks, *(r.stack for r in recipes if r.stack is not None)}
        models = [self._scope.matrix.model(name) for name in self._scope.plan.models]
        if any((m.build and m.has_own_code) or m.packages for m in models):
            # a shard's checkpoint, and its versions of packages, are those of the whole run
            needed.add(self._scope.whole.stacks[0])
        self._scope.phases.begin(
            "stacks", len(needed), f"{len(needed):,}, built where they are new"
        )
        await asyncio.gather(
            *(self._build_and_show(spec) for spec in self._scope.matrix.stacks if spec.id in needed)
        )
        unknown = {
            model.build.architecture
            for model in map(self._scope.matrix.model, self._scope.plan.models)
            # a stack's own list does not have what packages register
            if model.build and model.build.stack is None and not model.has_own_code
        }
        for spec in self.makers():
            # the oldest stack that knows an architecture makes its checkpoint, selected or not
            if unknown and spec.id not in needed:
                await self._build_and_show(spec)
            if spec.id in self.built:
                unknown -= set(self.built[spec.id].architectures)
        await self._add_packages()
        self._scope.phases.end("stacks")
        self._open_processes()

    async def _add_packages(self) -> None:
        """Install the packages of the plan's models beside every stack that was built."""
        models = [self._scope.matrix.model(name) for name in self._scope.plan.models]
        listed = {model.packages: model.added for model in models if model.packages}
        await asyncio.gather(*(self._add_beside_all(*entry) for entry in listed.items()))

    async def _add_beside_all(self, packages: tuple[str, ...], added: tuple[str, ...]) -> None:
        """Install packages beside all stacks, the same versions of those that are listed.

        ``added`` are those that no user listed. All stacks get the same ones: as many as fit every stack.
        """
        attempts: list[dict[str, ExtendedStack | PackagesError]] = []
        for left_out in range(len(added) + 1):
            without = added[len(added) - left_out :]
            wanted = tuple(package for package in packages if package not in without)
            attempts.append(await self._beside_all(wanted))
            if not _n_errors(attempts[-1]):
                break
        best = min(attempts, key=_n_errors)
        if missing := added[len(added) - attempts.index(best) :]:
            self._say_what_is_missing(missing, attempts[: attempts.index(best)])
        for stack, extended in best.items():
            if isinstance(extended, PackagesError):
                self.not_extended[stack, packages] = extended
                text = f"{', '.join(packages)} is not installed in {stack}"
                self._scope.dependencies.mark_unrepeatable(text)
            else:
                self.extended[stack, packages] = extended

    def _say_what_is_missing(
        self,
        missing: tuple[str, ...],
        before: Iterable[Mapping[str, ExtendedStack | PackagesError]],
    ) -> None:
        """Say which of the added packages no stack has; ``before`` is what was tried with them.

        Where the machine was the reason, the next run may have them, so this one stands for no other.
        """
        text = f"no {' and '.join(missing)} for all environments: what needs it is computed without, or not at all"
        errors = (error for beside in before for error in beside.values())
        fault = next((e for e in errors if isinstance(e, PackagesError) and e.machine), None)
        if fault is None:
            self._scope.progress.note(text)
            return
        reason = " ".join(str(fault).split())
        self._scope.note(
            f"{text}. The machine is the reason, and another run tries again: {reason}"
        )
        self._scope.dependencies.mark_unrepeatable(f"{' and '.join(missing)} could not be fetched")

    async def _beside_all(
        self, packages: tuple[str, ...]
    ) -> dict[str, ExtendedStack | PackagesError]:
        """Return every stack with packages: in the versions of the oldest stack that can have them.

        A newer stack gets no older version. That of years ago, which sets no bound on transformers,
        is not one for the release that a newer version excludes.
        """
        beside: dict[str, ExtendedStack | PackagesError] = {}
        ids = [spec.id for spec in self._scope.matrix.stacks if spec.id in self.built]
        for number, id in enumerate(ids):
            beside[id] = await self._with_packages(id, packages)
            if isinstance(chosen := beside[id], ExtendedStack):
                exact = with_versions(packages, chosen)
                newer = ids[number + 1 :]
                rest = await asyncio.gather(*(self._with_packages(n, exact) for n in newer))
                named = _chosen_by(id, packages, exact)
                return beside | {n: _explained(r, named) for n, r in zip(newer, rest, strict=True)}
        return beside

    async def _with_packages(
        self, id: str, packages: tuple[str, ...]
    ) -> ExtendedStack | PackagesError:
        stays = self._scope.matrix.stack(id).packages
        return await self.extended_with(self.built[id], id, packages, stays)

    async def extended_with(
        self, stack: Stack, id: str, packages: Sequence[str], stays: Iterable[str]
    ) -> ExtendedStack | PackagesError:
        """Return a stack with packages, or why they are not installed."""
        python = self._scope.matrix.stack(id).python
        try:
            return await _with_retry(partial(self._extend, stack, python, packages, tuple(stays)))
        except PackagesError as error:
            return error
        except (StackError, OSError) as error:
            return _machine_error(error)

    def makers(self) -> list[StackSpec]:
        """Return the stacks that may make checkpoints.

        Releases that ``--releases`` adds do not: they run the same checkpoints as the matrix.
        """
        return [spec for spec in self._scope.matrix.stacks if not spec.between]

    async def ensure(self, spec: StackSpec) -> None:
        """Build a stack with its packages unless it was built, and start its process."""
        async with self._building.setdefault(spec.id, asyncio.Lock()):
            if spec.id in self.built or spec.id in self.failures:
                return
            await self._build_and_show(spec)
            await self._add_packages()
            self._open_processes()

    async def _build_and_show(self, spec: StackSpec) -> None:
        self._scope.progress.stack(spec.id, "resolving and building")
        try:
            await self._fetch_lock(spec)
            self.built[spec.id] = await _with_retry(partial(self._build_stack, spec))
        except (StackError, OSError) as error:
            self.failures[spec.id] = _without_its_folders(error)
            self._scope.dependencies.mark_unrepeatable(f"environment {spec.id} could not be built")
            state = "not finished" if self.failures[spec.id].machine else "failed"
            self._scope.progress.stack(spec.id, state, is_busy=False)
            return
        finally:
            self._scope.progress.advance("stacks")
        await self._share_lock(spec)
        release = f"transformers {self.built[spec.id].transformers}"
        self._scope.progress.stack(spec.id, release, is_busy=False)

    async def _fetch_lock(self, spec: StackSpec) -> None:
        """Take the lock of a stack from a shared store, so that several machines run the same."""
        if spec.torch == SYSTEM:  # its lock is what this machine has
            return
        path = self._stack_builder.lock_path(spec)
        is_alone = self._scope.order.merged is None and self._scope.order.on is None
        keeps_own = path.exists() and is_alone
        if self._scope.order.upgrade or keeps_own:
            return
        files = await asyncio.to_thread(self._scope.sharing.read, f"locks/{path.name}")
        text = (files or {}).get(path.name, b"").decode("utf-8", "replace")
        if is_plain_lock(text) and text.encode() != _content_or_empty(path):
            replace(path, text)

    async def _share_lock(self, spec: StackSpec) -> None:
        """Push the lock of a stack; the store keeps the first one until a run upgrades it."""
        if spec.torch == SYSTEM:
            return
        path = self._stack_builder.lock_path(spec)
        if not path.exists():
            return
        push = self._scope.sharing.write if self._scope.order.upgrade else self._scope.sharing.offer
        content = {path.name: _content_or_empty(path)}
        if is_plain_lock(content[path.name].decode("utf-8", "replace")):
            await asyncio.to_thread(push, f"locks/{path.name}", content)

    def _open_processes(self) -> None:
        needs_hub = any(self._scope.matrix.model(name).hub for name in self._scope.whole.models)
        stacks: dict[Key, Stack] = {(id, ()): stack for id, stack in self.built.items()}
        for key, stack in (stacks | self.extended).items():
            if key in self.processes:
                continue
            self.environment = probe_environment(
                self._scope.environ,
                needs_hub=needs_hub,
                modules_cache=str(self.modules(stack)),
                kernels=self._scope.order.kernels,
            )
            is_extended = isinstance(stack, ExtendedStack)
            name = f"{stack.id}-{stack.lock_digest[:12]}" if is_extended else stack.id
            self.processes[key] = StackProcess(
                stack.id,
                stack.python,
                self.environment | variables_of(stack),
                self._scope.root / "logs" / f"{name}-{self._scope.id}.log",
                self._scope.slots,
                self._starter_of(stack),
            )
            self.processes[key].on_step = self.on_step
            self.processes[key].mend = self.mend

    def _starter_of(self, stack: Stack) -> Starter:
        """Return what starts the process of a stack: its keeper, if the user allows one and it is safe."""
        minutes, folder = self._scope.order.warm, self._keepers
        if not minutes or folder is None or not warm.can_stay(stack):
            return self._starter
        return warm.starter(folder, stack, self._scope.probes, minutes * 60)

    def modules(self, stack: Stack) -> Path:
        """Return the folder to which this run's process of a stack copies remote code."""
        return self._scope.root / "modules" / f"{stack.lock_digest[:12]}-{self._scope.id}"


async def _with_retry(build: Callable[[], T]) -> T:
    """Build something in a thread; once more if the machine was the reason that it could not be built."""
    try:
        return await asyncio.to_thread(build)
    except (StackError, PackagesError, OSError) as error:
        if not getattr(error, "machine", True):
            raise
    return await asyncio.to_thread(build)


def _without_its_folders(error: StackError | OSError) -> StackError:
    """Return why a stack could not be built, for a report; an OSError is the machine's."""
    text, machine = without_folders(str(error)), getattr(error, "machine", True)
    return StackMachineError(text) if machine else StackError(text)


def _machine_error(error: StackError | OSError) -> PackagesError:
    """Return why packages could not be installed, and whether the machine is the reason."""
    failure = _without_its_folders(error)
    return PackagesError(str(failure), contradicts=False, machine=failure.machine)


def _content_or_empty(path: Path) -> bytes:
    try:
        return read_whole(path)
    except OSError:
        return b""


def _n_errors(beside: Mapping[str, ExtendedStack | PackagesError]) -> int:
    return sum(isinstance(extended, PackagesError) for extended in beside.values())


def _chosen_by(stack: str, listed: Sequence[str], exact: Sequence[str]) -> str:
    """Return which versions the packages have in all stacks, and why; '' if they are as listed."""
    chosen = [new for old, new in zip(listed, exact, strict=True) if old != new]
    if not chosen:
        return ""
    return f"All environments get the same version, {', '.join(chosen)}, the newest for environment {stack}."


def _explained(
    extended: ExtendedStack | PackagesError, reason: str
) -> ExtendedStack | PackagesError:
    """Return a stack as it is; of an error that is a result, the reason for the versions, too."""
    if isinstance(extended, ExtendedStack) or not extended.contradicts:
        return extended
    return PackagesError(f"{extended} {reason}".strip(), contradicts=True)

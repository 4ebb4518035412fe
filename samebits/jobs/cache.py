"""The life cycle that all jobs with a cached result share.

A result file is named after the digest of everything that determines the result. A cached result is
used if it is whole, of this format, repeatable, and every tensor that it stored is undamaged.
Otherwise the job runs in its stack. It writes under a unique name, because another run may run the
same job. Its files are then renamed, and a torn result is removed. A result that the machine may
have caused is noted in the dependencies, so that the receipt of the run is never used.

With a shared store, what the work folder does not have is looked for there, and a repeatable result
is pushed to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from samebits.base.digests import accelerator_facts, digest_of
from samebits.base.filestate import Dependencies
from samebits.records.capture import Failure
from samebits.records.record import R, read_record
from samebits.stacks.process import tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.jobs.records import Job
    from samebits.records.ids import CellId, Variant
    from samebits.records.tensor import TensorRef
    from samebits.stacks.process import Ended, StackProcess
    from samebits.storage.sharing import Sharing
    from samebits.storage.store import Store


class MayFail(Protocol):
    """A result that holds the exception of its job, if there was one."""

    @property
    def failure(self) -> Failure | None:
        """The exception; None if the job succeeded."""


@dataclass(frozen=True)
class ResultForm(Generic[R]):
    """The record of one kind of result, and what its reuse depends on."""

    record: type[R]
    is_repeatable: Callable[[R], bool]
    """False if another run of the same job may give another result."""
    tensors: Callable[[R], Iterable[TensorRef]] = lambda _result: ()
    """Every tensor of the result; those that are stored must be undamaged."""


@dataclass(frozen=True)
class CachedJob(Generic[R]):
    """One job, where its result is cached, and what is noted if it fails."""

    path: Path
    form: ResultForm[R]
    checkpoint: Checkpoint
    job: Callable[[Path], Job]
    """Returns the job that writes its result to a given path."""
    unrepeatable: str
    """The reason to note if the result is missing, or if the machine may have caused it."""
    cell: CellId | None = None
    """The cell whose result it is, for the dependencies."""
    belongs: Callable[[R], bool] = lambda _result: True
    """False for a result of another cell, which counts as missing."""
    if_lost: Callable[[Failure], R | None] = lambda _failure: None
    """Returns the result of a job that left none; it is not cached."""


class Left(NamedTuple, Generic[R]):
    """What one run of a job left."""

    result: R | None
    ended: Ended
    written: Path
    """The path that the job wrote to, whether or not there is a file."""
    log: Path


class JobCache:
    """The cached results of all jobs of one work folder."""

    def __init__(
        self,
        root: Path,
        store: Store,
        probes: str = "",
        machine: str = "",
        *,
        fresh: bool = False,
        dependencies: Dependencies | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self.root = root
        self.store = store
        self.probes = probes
        """Digest of the probes' source."""
        self.machine = machine
        """Fingerprint of the machine."""
        self.fresh = fresh
        """Ignore the results of earlier runs."""
        self.dependencies = dependencies or Dependencies()
        self.sharing = sharing
        """The stores that are shared with other machines; None without one."""

    def machine_of(self, variant: Variant) -> str:
        """Return the fingerprint of the machine for the cells of a variant.

        That of a GPU's cells has the GPUs of the machine, too.
        """
        if variant.device == "cpu":
            return self.machine
        return digest_of([self.machine, *accelerator_facts()])

    def path(self, folder: str, *names: str, facts: Mapping[str, Any]) -> Path:
        """Return the path of the result that ``facts`` determine, whether or not it exists."""
        return self.root.joinpath(folder, *names, f"{digest_of(facts)[:16]}.json")

    def path_of_cell(self, folder: str, cell: CellId, facts: Mapping[str, Any]) -> Path:
        """Return the path of a cell's result, which also depends on the probes and the machine."""
        whole = {**facts, "probes": self.probes, "machine": self.machine_of(cell.variant)}
        return self.path(folder, cell.model, str(cell.variant), cell.stack, facts=whole)

    def may_reuse(self, checkpoint: Checkpoint) -> bool:
        """Return True if results of earlier runs with this checkpoint may be used."""
        return checkpoint.pinned and not self.fresh

    def find(self, path: Path, form: ResultForm[R], checkpoint: Checkpoint) -> R | None:
        """Return the cached result; None if there is none that may be used."""
        self.dependencies.file(path)
        if not self.may_reuse(checkpoint):
            return None
        result = read_record(path, form.record)
        if result is None or not form.is_repeatable(result):
            return None
        return result if self.store.verify_all(form.tensors(result)) else None

    async def result(self, job: CachedJob[R], process: StackProcess) -> R | None:
        """Return the result of a job, cached or new; None if it left none."""
        cached = self.find(job.path, job.form, job.checkpoint)
        if cached is None:
            cached = await self._fetched(job)
        if cached is not None:
            await self.share(job.checkpoint, job.path)
            return cached
        left = await run_aside(job.path, job.form.record, job.job, process)
        result = left.result if left.result is not None and job.belongs(left.result) else None
        if result is not None:
            publish(left.written, job.path)
        else:
            result = job.if_lost(no_result(left.ended, left.log))
            with contextlib.suppress(OSError):
                left.written.unlink()
        publish(left.log, job.path.with_suffix(".log"))
        self.dependencies.file(job.path)
        if result is None or not job.form.is_repeatable(result):
            self.dependencies.mark_unrepeatable(job.unrepeatable, str(job.cell) if job.cell else "")
        else:
            await self.share(job.checkpoint, job.path)
        return result

    async def _fetched(self, job: CachedJob[R]) -> R | None:
        """Return a result that a shared store has; None if none has it."""

        def usable() -> R | None:
            result = self.find(job.path, job.form, job.checkpoint)
            return result if result is not None and job.belongs(result) else None

        if not await self.fetch(job.checkpoint, job.path, lambda: usable() is not None):
            return None
        return usable()

    async def fetch(self, checkpoint: Checkpoint, path: Path, is_whole: Callable[[], bool]) -> bool:
        """Put a result of a shared store at its path; return False if no store has it."""
        sharing = self.sharing
        if sharing is None or not self.may_reuse(checkpoint):
            return False
        return await asyncio.to_thread(
            sharing.fetch, sharing.name_of(path), path.parent, is_whole, (path.name,)
        )

    async def share(self, checkpoint: Checkpoint, path: Path) -> None:
        """Push a result to the shared store unless it has it."""
        if self.sharing is not None and checkpoint.pinned:
            await asyncio.to_thread(self.sharing.push, self.sharing.name_of(path), [path])


async def run_aside(
    path: Path,
    record: type[R],
    job: Callable[[Path], Job],
    process: StackProcess,
) -> Left[R]:
    """Run a job that writes beside ``path``; the caller renames or removes what it wrote."""
    written = aside(path)
    sent = job(written)
    ended = await process.run(sent.as_json())
    return Left(read_record(written, record), ended, written, Path(sent.log))


def aside(path: Path) -> Path:
    """Return a unique path beside ``path``, because another run may run the same job."""
    return path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}{path.suffix}")


def publish(written: Path, path: Path) -> None:
    """Rename a file that a job wrote to its final name, if it wrote one."""
    with contextlib.suppress(OSError):
        written.replace(path)


def no_result(ended: Ended, log: Path) -> Failure:
    """Return the failure of a job that left no result."""
    message = ended.reason or "it wrote no result"
    return Failure(phase="process", type="no result", message=message, traceback=tail(log))


def is_repeatable(result: MayFail) -> bool:
    """Return True if another run of the same job would give the same result."""
    return result.failure is None or not result.failure.may_be_the_machine

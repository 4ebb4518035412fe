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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from samebits.base.digests import accelerator_facts, digest_of
from samebits.base.filestate import Dependencies
from samebits.jobs.checkpoints import Checkpoint
from samebits.records.capture import Failure
from samebits.records.ids import CellId, Variant
from samebits.records.record import read_record
from samebits.records.result import JobFile
from samebits.records.tensor import stored_tensors
from samebits.stacks.process import Ended, StackProcess, tail
from samebits.storage.sharing import Sharing
from samebits.storage.store import Store
from samebits_wire.atomic import move
from samebits_wire.jobs import JobKeys

J = TypeVar("J", bound=JobFile)


@dataclass(frozen=True)
class CachedJob(Generic[J]):
    """One job, where its result is cached, and what is noted if it fails."""

    path: Path
    record: type[J]
    checkpoint: Checkpoint
    job: Callable[[Path], JobKeys]
    """Returns the job that writes its result to a given path."""
    unrepeatable: str
    """The reason to note if the result is missing, or if the machine may have caused it."""
    row: str = ""
    """The cell whose row follows from the result, for the dependencies."""
    belongs: Callable[[J], bool] = lambda _result: True
    """False for a result of another cell, which counts as missing."""


class Left(NamedTuple, Generic[J]):
    """What one run of a job left."""

    result: J | None
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
        self.sharing = sharing or Sharing(root)
        """The stores that are shared with other machines."""

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

    async def find(
        self,
        path: Path,
        record: type[J],
        checkpoint: Checkpoint,
        belongs: Callable[[J], bool] = lambda _result: True,
    ) -> J | None:
        """Return the cached result, of this work folder or of a shared store; None without one."""

        def usable() -> J | None:
            result = read_record(path, record)
            if result is None or not result.is_repeatable or not belongs(result):
                return None
            return result if self.store.verify_all(stored_tensors(result)) else None

        self.dependencies.file(path)
        if not self.may_reuse(checkpoint):
            return None
        result = usable()
        if result is None:
            await asyncio.to_thread(
                self.sharing.fetch,
                self.sharing.name_of(path),
                path.parent,
                lambda: usable() is not None,
                (path.name,),
            )
            self.dependencies.file(path)
            result = usable()
        if result is not None:
            await self.share(checkpoint, path)
        return result

    async def result(self, job: CachedJob[J], process: StackProcess) -> J | Failure:
        """Return the result of a job, cached or new, or why it left none."""
        cached = await self.find(job.path, job.record, job.checkpoint, job.belongs)
        if cached is not None:
            return cached
        left = await run_aside(job.path, job.record, job.job, process)
        result: J | Failure
        if left.result is not None and job.belongs(left.result):
            result = left.result
            publish(left.written, job.path)
        else:
            result = no_result(left.ended, left.log)
            with contextlib.suppress(OSError):
                left.written.unlink()
        publish(left.log, job.path.with_suffix(".log"))
        self.dependencies.file(job.path)
        if isinstance(result, Failure) or not result.is_repeatable:
            self.dependencies.mark_unrepeatable(job.unrepeatable, job.row)
        else:
            await self.share(job.checkpoint, job.path)
        return result

    async def share(self, checkpoint: Checkpoint, path: Path) -> None:
        """Push a result to the shared store unless it has it."""
        if checkpoint.pinned:
            await asyncio.to_thread(self.sharing.push, self.sharing.name_of(path), [path])


async def run_aside(
    path: Path,
    record: type[J],
    job: Callable[[Path], JobKeys],
    process: StackProcess,
) -> Left[J]:
    """Run a job that writes beside ``path``; the caller renames or removes what it wrote."""
    written = aside(path)
    sent = job(written)
    ended = await process.run(sent)
    return Left(read_record(written, record), ended, written, Path(sent["log"]))


def aside(path: Path) -> Path:
    """Return a unique path beside ``path``, because another run may run the same job."""
    return path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}{path.suffix}")


def publish(written: Path, path: Path) -> None:
    """Rename a file that a job wrote to its final name, if it wrote one."""
    with contextlib.suppress(OSError):
        move(written, path)


def no_result(ended: Ended, log: Path) -> Failure:
    """Return the failure of a job that left no result."""
    message = ended.reason or "it wrote no result"
    return Failure(phase="process", type="no result", message=message, traceback=tail(log))

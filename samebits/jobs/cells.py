"""What did each cell compute: its two captures, made now or kept from an earlier run.

A capture is kept under the digest of all that its bits follow from: stack lock, checkpoint
content, variant, prompts, the probes' source and this machine. Captures of other probes or
of another machine therefore never meet.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from samebits.base.digests import digest_of
from samebits.base.errors import CaptureError
from samebits.base.filestate import Ledger
from samebits.base.redaction import without_folders
from samebits.jobs.common import common_job, follows_from
from samebits.jobs.unwritten import believed
from samebits.records.capture import Capture, Failure, Skip, Unfinished
from samebits.stacks.process import Ended, StackProcess, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.stacks.build import Stack
    from samebits.storage.store import Store

RunName = Literal["a", "b"]
RUNS: tuple[RunName, RunName] = ("a", "b")
VALUES_LIMIT = 16 << 20
"""Bytes up to which a tensor's values are kept at once; larger ones are fetched if they differ."""
NOT_STARTED = "not started"
"""Type of a failure that no exception made: there is no stack, or no checkpoint."""
_STRAY = 86_400
"""Seconds after which a file of a run that was killed is removed; no cell takes as long."""


class CellRunner:
    """Runs cells and reads what they left."""

    def __init__(
        self,
        root: Path,
        store: Store,
        probes: str,
        machine: str,
        *,
        fresh: bool = False,
        sweep: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._store = store
        self._probes = probes
        self._machine = machine
        self._fresh = fresh
        self._sweep = sweep

    async def observe(
        self,
        cell: CellId,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        wanted: Iterable[str] = (),
        started: Callable[[], None] = lambda: None,
    ) -> tuple[Capture, Capture]:
        """Return the captures of both runs of ``cell``; ``started`` is called when they begin.

        ``wanted`` are hashes whose values a second look is to keep; it always runs anew.
        """
        folder = self._folder(cell, model, checkpoint, stack)
        if not wanted and checkpoint.pinned:
            kept = self._kept(folder, process.n_slots)
            if kept is not None:
                return believed(*kept)
        _remove_strays(folder)
        jobs = [self._job(cell, model, checkpoint, folder, run, list(wanted)) for run in RUNS]
        ended = await asyncio.gather(*(process.run(job, started) for job in jobs))
        first, second = (self._read(cell, job, end) for job, end in zip(jobs, ended, strict=True))
        for job in jobs:
            self._ledger.file(_publish(job))
        return believed(first, second)

    def paths(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack
    ) -> tuple[Path, Path]:
        """Return where both runs leave their captures, whether or not they are there."""
        folder = self._folder(cell, model, checkpoint, stack)
        return folder / "a.json", folder / "b.json"

    def read(self, paths: tuple[Path, Path]) -> tuple[Capture, Capture]:
        """Return the captures of a cell that is known to have run.

        Raises:
            CaptureError: one is not whole; it is removed, so that the next run makes it anew.

        """
        first, second = map(self._whole, paths)
        return believed(first, second)

    def _whole(self, path: Path) -> Capture:
        try:
            return self._capture(path)
        except CaptureError:
            path.unlink(missing_ok=True)
            raise

    def _folder(self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack) -> Path:
        key = digest_of(
            {
                **follows_from(cell, model, checkpoint, stack),
                "greedy": model.greedy,
                "invariants": self._invariants(model),
                "usage": _tries_usage(cell, model),
                "budget": model.budget,
                "probes": self._probes,
                "machine": self._machine,
            }
        )
        return self._root / "captures" / model.name / str(cell.variant) / cell.stack / key[:16]

    def _invariants(self, model: ModelSpec) -> dict[str, Any] | None:
        """Return how the relations inside the cell are tried; None if they are not."""
        if not model.invariants:
            return None
        return {"sweep": self._sweep, "samples": model.samples, "large": model.insists}

    def _kept(self, folder: Path, n_slots: int) -> tuple[Capture, Capture] | None:
        """Return the captures of an earlier run if both are whole and the model itself answered.

        An exception of the model is an answer. A run that left nothing or did not finish, and an
        exception that speaks of memory or files, may have been the machine's doing: those run again.
        So does one that left something out for its price, where a job may take more memory now.
        """
        if self._fresh:
            return None
        try:
            first, second = (self._capture(folder / f"{run}.json") for run in RUNS)
        except CaptureError:
            return None
        kept = first, second
        if any(c.slots > n_slots and any(s.why == "cost" for s in c.skips) for c in kept):
            return None
        return kept if all(map(_is_answer, kept)) else None

    def _job(
        self,
        cell: CellId,
        model: ModelSpec,
        checkpoint: Checkpoint,
        folder: Path,
        run: RunName,
        wanted: list[str],
    ) -> dict[str, Any]:
        # another run may be at the same cell: what each leaves has a name of its own at first
        name = f"{run}.{uuid.uuid4().hex[:12]}"
        common = common_job("cell", cell, model, checkpoint)
        return {
            **common,
            "run": run,
            "log": str(folder / f"{name}.log"),
            "capture": str(folder / f"{name}.json"),
            "model": {
                **common["model"],
                "greedy": model.greedy,
                "invariants": self._invariants(model),
                "usage": _tries_usage(cell, model),
            },
            "store": {"root": str(self._root), "limit": VALUES_LIMIT, "wanted": wanted},
        }

    def _read(self, cell: CellId, job: dict[str, Any], ended: Ended) -> Capture:
        """Return what the run left, or a failed capture that says why it left nothing."""
        path = Path(job["capture"])
        try:
            found = self._store.read_capture(path)
        except CaptureError as error:
            reason = ended.reason or str(error).replace(str(path), "its capture")
        else:
            if (found.cell, found.run) == (cell, job["run"]):
                if not _is_answer(found):
                    self._ledger.unsettle(f"{cell} failed as a machine may", str(cell))
                if found.status == "unfinished":
                    return _ended_early(found, job, ended)
                return found
            reason = f"it left the capture of {found.cell}, run {found.run}"
        self._ledger.unsettle(f"{cell} left nothing", str(cell))
        if ended.stopped:
            return _ended_early(_nothing(cell, job), job, ended)
        log = tail(Path(job["log"]))
        failure = Failure(phase="process", type="no result", message=reason, traceback=log)
        return Capture(cell=cell, run=job["run"], status="failed", failure=failure)

    def _capture(self, path: Path) -> Capture:
        self._ledger.file(path)
        return self._store.read_capture(path)


def _tries_usage(cell: CellId, model: ModelSpec) -> bool:
    """Return True for the first of the model's variants on the CPU: no other would say more."""
    first = next((v for v in model.variants if v.device == "cpu"), None)
    return model.usage and cell.variant == first


def _nothing(cell: CellId, job: dict[str, Any]) -> Capture:
    """Return the capture of a run that ended before it had observed anything."""
    return Capture(cell=cell, run=job["run"], status="unfinished")


def _ended_early(capture: Capture, job: dict[str, Any], ended: Ended) -> Capture:
    """Return what a run had observed before it ended, with how it ended, and what is missing for it.

    What the process did to itself is a failure of the phase; a clock, and want of memory, are none.
    """
    phase = ended.phase or (capture.unfinished.phase if capture.unfinished else "start")
    reason = ended.why or "the probe ended before it wrote it"
    told = Unfinished(phase=phase, reason=reason, step=ended.step)
    failures = capture.failures
    if ended.crashed or not ended.why:
        log = tail(Path(job["log"]))
        crash = Failure(phase=phase, type="no result", message=reason, traceback=log)
        failures = (*failures, crash)
    missing = _missing(capture, job, f"the run ended before: {reason} in phase {phase}")
    skips = (*capture.skips, *missing)
    return capture.model_copy(
        update={"unfinished": told, "failures": failures, "skips": skips},
    )


def _missing(capture: Capture, job: dict[str, Any], reason: str) -> Iterator[Skip]:
    """Yield a skip for every signal that makes a verdict, and every prompt, that is not there."""
    signals = capture.signals
    for name in ("weights", "buffers", "inv_freq"):
        if getattr(signals, name) is None:
            yield Skip(what=name, reason=reason, why="unfinished")
    told = {skip.what for skip in capture.skips}
    for name, found in (("forward", signals.forward), ("greedy", signals.greedy)):
        observed = {row.partition("[")[0] for row in found or {}}
        for prompt in job["model"]["prompts"]:
            if prompt not in observed and not told & {name, f"{name} {prompt}", f"prompt {prompt}"}:
                yield Skip(what=f"{name} {prompt}", reason=reason, why="unfinished")


def _publish(job: dict[str, Any]) -> Path:
    """Give what a job left the name under which a later run looks for it: ``a.json``, ``a.log``.

    A capture of before goes in any case: it is not what the cell does now. Returns the capture's.
    """
    kept = Path(job["capture"])
    for path in (Path(job["log"]), Path(job["capture"])):
        kept = path.with_name(f"{job['run']}{path.suffix}")
        try:
            path.replace(kept)
        except FileNotFoundError:
            kept.unlink(missing_ok=True)
    return kept


def _remove_strays(folder: Path) -> None:
    """Remove what runs left that were killed."""
    oldest = time.time() - _STRAY
    strays = ("[ab].*.*", ".[ab].*.tmp", ".integrity-*", ".usage-*")
    for path in (path for stray in strays for path in folder.glob(stray)):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_answer(capture: Capture) -> bool:
    """Return True if the same run again would leave the same."""
    if capture.status == "unfinished" or (capture.status == "failed" and not capture.failure):
        return False
    failures = (*filter(None, (capture.failure,)), *capture.failures)
    return not any(failure.may_be_the_machine for failure in failures)


def failed(cell: CellId, phase: str, message: str, log: str = "") -> tuple[Capture, Capture]:
    """Return the captures of a cell that could not even be started."""
    said = without_folders(message)
    failure = Failure(phase=phase, type=NOT_STARTED, message=said, traceback=without_folders(log))
    first, second = (Capture(cell=cell, run=run, status="failed", failure=failure) for run in RUNS)
    return first, second

"""Runner of cells, which makes the two captures of a cell or takes them from the cache.

The folder of a cell's captures is named after the digest of everything that determines their bits:
stack lock, checkpoint content, variant, prompts, the probes' source and this machine. Captures of
different probes or machines are therefore never compared.

Run b is a short one, beside run a. If it shows anything but that it agrees, a full run b follows,
and the cell is judged by that one. So a short run b never makes a cell unstable.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.errors import CaptureError
from samebits.base.filestate import is_older
from samebits.compare.probes import may_be_the_machine
from samebits.compare.signals import agrees
from samebits.jobs.cache import JobCache, aside
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell, follows_from, job_of, model_of
from samebits.jobs.records import Options
from samebits.jobs.unwritten import without_false_alarms
from samebits.matrix.spec import ModelSpec
from samebits.records.capture import NO_DEVICE, Capture, Extent, Failure, Skip, Unfinished
from samebits.records.ids import CellId
from samebits.records.kinds import CELL
from samebits.records.question import keys
from samebits.stacks.process import Ended, tail
from samebits_wire.atomic import move, remove
from samebits_wire.folders import without_folders
from samebits_wire.jobs import CellJob, ObservedModel, RunName

OptionsOf = Callable[["CellId", "ModelSpec"], dict[str, "Options"]]
"""Returns the questions that phases of a cell are asked, each with its options."""
RUNS: tuple[RunName, RunName] = ("a", "b")
VALUES_LIMIT = 16 << 20
"""Bytes up to which a tensor's values are stored; larger ones are stored if they differ."""
NOT_STARTED = "not started"
"""Failure type of a cell without a stack or a checkpoint, which is not an exception."""
_STALE_AFTER = 86_400
"""Seconds after which a file of a killed run is removed; no cell takes that long."""


def no_options(_cell: CellId, _model: ModelSpec) -> dict[str, Options]:
    """Ask nothing beside what verdicts need."""
    return {}


class FinishedRun(NamedTuple):
    """One run of a cell that has ended, and whose files have no lasting names yet."""

    job: CellJob
    capture: Capture
    unrepeatable: str
    """Why another run may end otherwise; '' if none will."""

    def discard(self) -> None:
        """Remove its files."""
        for path in (self.job["capture"], self.job["log"]):
            remove(Path(path))


class CellRunner:
    """Runs cells and reads their captures."""

    def __init__(self, cache: JobCache, options: OptionsOf = no_options) -> None:
        """``options`` returns what the phases of questions are asked in a cell."""
        self._cache = cache
        self._options = options

    async def observe(
        self,
        ready: ReadyCell,
        wanted: Iterable[str] = (),
        started: Callable[[], None] = lambda: None,
    ) -> tuple[Capture, Capture]:
        """Return the captures of both runs of a cell; ``started`` is called when they begin.

        ``wanted`` are hashes of tensors whose values a second look stores. With them the cell
        always runs again.
        """
        folder, checkpoint, model = self.folder(ready), ready.checkpoint, ready.model
        known: tuple[Capture, ...] = ()
        if not wanted and self._cache.may_reuse(checkpoint):
            n_beside = ready.process.n_beside(ready.threads)
            known = await self._known(folder, n_beside, in_full=model.second_in_full)
        if len(known) == len(RUNS):
            await self.share(checkpoint, folder, known)
            return without_false_alarms(*known)
        _remove_leftovers(folder)

        async def run(run: RunName, *, short: bool = False) -> FinishedRun:
            job = self._job(ready, folder, run, tuple(wanted), short=short)
            ended = await ready.process.run(job, started)
            return self._read(ready.cell, job, ended)

        if known:
            second = await run("b")
            captures = known[0], self._keep(second)
        else:
            first, second = await asyncio.gather(run("a"), run("b", short=not model.second_in_full))
            if second.capture.extent == "short" and not _may_stand(second.capture, first.capture):
                second.discard()
                second = await run("b")
            captures = self._keep(first), self._keep(second)
        if wanted and checkpoint.pinned:
            await asyncio.to_thread(self._cache.sharing.push_tensors, {*wanted})
        await self.share(checkpoint, folder, captures)
        return without_false_alarms(*captures)

    async def share(
        self, checkpoint: Checkpoint, folder: Path, captures: Sequence[Capture]
    ) -> None:
        """Push the captures of a cell to the shared store if they hold on every such machine."""
        sharing = self._cache.sharing
        if not checkpoint.pinned or not all(map(_is_shared, captures)):
            return
        name = _shared_name(sharing.name_of(folder), in_full=captures[1].extent == "full")
        await asyncio.to_thread(sharing.push, name, [folder / f"{run}.json" for run in RUNS])

    async def _known(self, folder: Path, n_beside: int, *, in_full: bool) -> tuple[Capture, ...]:
        """Return the cached captures, of this work folder or of a shared store."""
        captures = self._cached_captures(folder, n_beside, in_full=in_full)
        sharing = self._cache.sharing
        if len(captures) == len(RUNS):
            return captures

        def is_whole() -> bool:
            with contextlib.suppress(CaptureError):
                return all(_is_repeatable(self._capture(folder / f"{run}.json")) for run in RUNS)
            return False

        names = {f"{run}.json" for run in RUNS}
        for is_full in (True,) if in_full else (False, True):
            name = _shared_name(sharing.name_of(folder), in_full=is_full)
            if await asyncio.to_thread(sharing.fetch, name, folder, is_whole, names):
                return self._cached_captures(folder, n_beside, in_full=in_full)
        return captures

    def paths(self, ready: ReadyCell) -> tuple[Path, Path]:
        """Return the paths of both captures, whether or not they exist."""
        folder = self.folder(ready)
        return folder / "a.json", folder / "b.json"

    def are_captured(self, paths: tuple[Path, Path], model: ModelSpec) -> bool:
        """Return True if a cell has captures that may serve a run of its matrix."""
        if not all(path.exists() for path in paths):
            return False
        if not model.second_in_full:
            return True
        with contextlib.suppress(CaptureError):
            return self._cache.store.read_capture(paths[1]).extent == "full"
        return False

    def read(self, paths: tuple[Path, Path]) -> tuple[Capture, Capture]:
        """Return the captures of a cell that has run.

        Raises:
            CaptureError: one is damaged. It is removed, so that the next run makes it again.

        """
        first, second = map(self._read_or_remove, paths)
        return without_false_alarms(first, second)

    def _read_or_remove(self, path: Path) -> Capture:
        try:
            return self._capture(path)
        except CaptureError:
            remove(path)
            raise

    def folder(self, ready: ReadyCell) -> Path:
        """Return the folder of a cell's captures, named after everything that determines their bits."""
        cell, model = ready.cell, ready.model
        facts = {
            **follows_from(ready),
            "greedy": model.greedy,
            "questions": {name: o.model_dump() for name, o in self._options(cell, model).items()},
            "reloads": model.reloads,
            "large": model.large,
            "budget": model.budget,
            "probe files": [file.as_json() for file in model.probe_files],
        }
        return self._cache.path_of_cell(CELL.folder, cell, facts).with_suffix("")

    def _cached_captures(
        self, folder: Path, n_beside: int, *, in_full: bool
    ) -> tuple[Capture, ...]:
        """Return the cached captures if both are whole and the machine cannot be the cause of them.

        If only a full second run will do (``in_full``) and it was a short one, only the first is
        returned. Without usable captures nothing is.

        An exception raised by the model is a valid result. A run without a result, an unfinished
        run and an exception about memory or files may be due to the machine: those run again. A run
        that skipped something for its cost also runs again if a job may use more memory now.
        """
        try:
            first, second = (self._capture(folder / f"{run}.json") for run in RUNS)
        except CaptureError:
            return ()
        captures = first, second
        if any(c.slots > n_beside and any(s.why == "cost" for s in c.skips) for c in captures):
            return ()
        if not all(map(_is_repeatable, captures)):
            return ()
        if second.extent == "full":
            return captures
        if in_full:
            return captures[:1]
        return captures if agrees(second, first) else ()

    def _job(
        self, ready: ReadyCell, folder: Path, run: RunName, wanted: tuple[str, ...], *, short: bool
    ) -> CellJob:
        path, cell, model = aside(folder / f"{run}.json"), ready.cell, ready.model
        # a short run that agrees has the tensors of run a, which stores them
        limit, wanted = (0, ()) if short else (VALUES_LIMIT, wanted)
        options = self._options(cell, model)
        observed: ObservedModel = {
            **model_of(model, ready.checkpoint),
            "greedy": model.greedy,
            "questions": {name: asked.as_json() for name, asked in options.items()},
            "reloads": model.reloads,
            "large": model.large,
            "probes": [file.as_json() for file in model.probe_files],
        }
        return {
            **job_of(ready, path),
            "kind": "cell",
            "run": run,
            "short": short,
            "capture": str(path),
            "store": {"root": str(self._cache.root), "limit": limit, "wanted": list(wanted)},
            "model": observed,
        }

    def _keep(self, run: FinishedRun) -> Capture:
        """Publish a run's files, note it if another run may end otherwise, and return it."""
        if run.unrepeatable:
            self._cache.dependencies.mark_unrepeatable(run.unrepeatable, str(run.capture.cell))
        self._cache.dependencies.file(_publish(run.job))
        return run.capture

    def _read(self, cell: CellId, job: CellJob, ended: Ended) -> FinishedRun:
        """Return a run with its capture, or with a failed one that says why there is none."""
        path = Path(job["capture"])
        try:
            capture = self._cache.store.read_capture(path)
        except CaptureError as error:
            reason = ended.reason or str(error).replace(str(path), "its capture")
        else:
            if _answers(capture, cell, job):
                unrepeatable = f"{cell} failed for a reason that may be the machine"
                unrepeatable = "" if _is_repeatable(capture) else unrepeatable
                if capture.status == "unfinished":
                    capture = _ended_early(capture, job, ended)
                return FinishedRun(job, capture, unrepeatable)
            extent = "" if _is_enough(capture, job) else "short "
            threads = "" if capture.threads == job["threads"] else f", {capture.threads} threads"
            reason = f"it wrote the {extent}capture of {capture.cell}, run {capture.run}{threads}"
            remove(path)  # else it would be kept, and a later run would read it
        unrepeatable = f"{cell} wrote no result"
        if ended.stopped:
            capture = _ended_early(_empty_capture(cell, job), job, ended)
            return FinishedRun(job, capture, unrepeatable)
        log = tail(Path(job["log"]))
        failure = Failure(phase="process", type="no result", message=reason, traceback=log)
        capture = Capture(
            cell=cell,
            run=job["run"],
            extent=_extent(job),
            threads=job["threads"],
            status="failed",
            failure=failure,
        )
        return FinishedRun(job, capture, unrepeatable)

    def _capture(self, path: Path) -> Capture:
        self._cache.dependencies.file(path)
        return self._cache.store.read_capture(path)


def _empty_capture(cell: CellId, job: CellJob) -> Capture:
    """Return the empty capture of a run that ended before its first observation."""
    return Capture(
        cell=cell, run=job["run"], extent=_extent(job), threads=job["threads"], status="unfinished"
    )


def _extent(job: CellJob) -> Extent:
    return "short" if job["short"] else "full"


def _answers(capture: Capture, cell: CellId, job: CellJob) -> bool:
    """Return True if a capture is of a cell, and of the run and the threads of its job."""
    is_of_job = (capture.cell, capture.run, capture.threads) == (cell, job["run"], job["threads"])
    return is_of_job and _is_enough(capture, job)


def _is_enough(capture: Capture, job: CellJob) -> bool:
    """Return True unless a job for a full run left a short one."""
    return job["short"] or capture.extent == "full"


def _ended_early(capture: Capture, job: CellJob, ended: Ended) -> Capture:
    """Return the capture of a run that ended early, with how it ended and what is missing.

    A crash of the process itself is a failure of the phase. A timeout, lack of memory and a missing
    device are not.
    """
    if (reason := _no_device(capture)) and not ended.why:
        skips = tuple(_missing(capture, job, reason))
        return capture.model_copy(update={"skips": (*capture.skips, *skips)})
    phase = ended.phase or (capture.unfinished.phase if capture.unfinished else "start")
    reason = ended.why or "the probe ended before it wrote it"
    unfinished = Unfinished(phase=phase, reason=reason, step=ended.step)
    failures = capture.failures
    if ended.crashed or not ended.why:
        log = tail(Path(job["log"]))
        crash = Failure(phase=phase, type="no result", message=reason, traceback=log)
        failures = (*failures, crash)
    missing_skips = _missing(capture, job, f"the run ended before: {reason} in phase {phase}")
    skips = (*capture.skips, *missing_skips)
    return capture.model_copy(
        update={"unfinished": unfinished, "failures": failures, "skips": skips},
    )


def _no_device(capture: Capture) -> str:
    """Return why the cell's device is missing; '' if it is not."""
    unfinished = capture.unfinished
    return unfinished.reason if unfinished and unfinished.phase == NO_DEVICE else ""


def _missing(capture: Capture, job: CellJob, reason: str) -> Iterator[Skip]:
    """Yield a skip for every missing prompt and every missing signal that the verdict needs."""
    signals = capture.signals
    for name in ("weights", "buffers", "inv_freq"):
        if getattr(signals, name) is None:
            yield Skip(what=name, reason=reason, why="unfinished")
    for file in job["model"]["probes"]:
        if file["verdict"] and file["name"] not in signals.probes:
            yield Skip(what=f"probe {file['name']}", reason=reason, why="unfinished")
    skipped = {skip.what for skip in capture.skips}
    for name, rows in (("forward", signals.forward), ("greedy", signals.greedy)):
        observed = {row.partition("[")[0] for row in rows or {}}
        for prompt in job["model"]["prompts"]:
            if prompt not in observed and not skipped & {
                name,
                f"{name} {prompt}",
                f"prompt {prompt}",
            }:
                yield Skip(what=f"{name} {prompt}", reason=reason, why="unfinished")


def _publish(job: CellJob) -> Path:
    """Rename a job's files to the names that later runs look for: ``a.json``, ``a.log``.

    An older capture is always replaced or removed, because it is not what the cell computes now.
    Without room on the disk there is none, and the cell runs again. Returns the path of the capture.
    """
    published = Path(job["capture"])
    for path in (Path(job["log"]), Path(job["capture"])):
        published = path.with_name(f"{job['run']}{path.suffix}")
        try:
            move(path, published)
        except OSError:
            if not published.is_char_device():
                with contextlib.suppress(OSError):
                    remove(published)
    return published


def _remove_leftovers(folder: Path) -> None:
    """Remove leftovers of killed runs."""
    cutoff = time.time() - _STALE_AFTER
    phases = ("integrity", "probes", *(key.name for key in keys()))
    patterns = ("[ab].*.*", ".[ab].*.tmp", *(f".{phase}-*" for phase in phases))
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        if is_older(path, cutoff):
            with contextlib.suppress(OSError):
                remove(path)


def _shared_name(name: str, *, in_full: bool) -> str:
    """Return the name of a cell's captures in a shared store; two full runs have one of their own."""
    return f"{name}-full" if in_full else name


def _is_shared(capture: Capture) -> bool:
    """Return True if any machine of this kind would have the same capture.

    What was left out for a machine's time or memory is not left out on a larger one.
    """
    return _is_repeatable(capture) and not any(skip.why == "cost" for skip in capture.skips)


def _may_stand(short: Capture, first: Capture) -> bool:
    """Return True if a short run may be judged by in place of a full one.

    A run that ended early is an observation: a full run that then finishes would hide it.
    """
    return short.status == "unfinished" or agrees(short, first)


def _is_repeatable(capture: Capture) -> bool:
    """Return True if another run of the same cell would give the same result."""
    if capture.status == "unfinished" or (capture.status == "failed" and not capture.failure):
        return False
    answers = [a for facts in capture.signals.probes.values() for a in facts.answers.values()]
    if any(a.failure is not None and may_be_the_machine(a.failure) for a in answers):
        return False
    failures = (*filter(None, (capture.failure,)), *capture.failures)
    return not any(failure.may_be_the_machine for failure in failures)


def absent(cell: CellId, reason: str) -> tuple[Capture, Capture]:
    """Return the captures of a cell that the packages of its model exclude."""
    return _both(cell, status="absent", absent=reason)


def not_finished(cell: CellId, phase: str, reason: str) -> tuple[Capture, Capture]:
    """Return the captures of a cell that the machine did not let start."""
    unfinished = Unfinished(phase=phase, reason=" ".join(without_folders(reason).split()))
    return _both(cell, status="unfinished", unfinished=unfinished)


def failed(cell: CellId, phase: str, message: str) -> tuple[Capture, Capture]:
    """Return the captures of a cell that could not be started."""
    text = without_folders(message)
    failure = Failure(phase=phase, type=NOT_STARTED, message=text, traceback="")
    return _both(cell, status="failed", failure=failure)


def _both(cell: CellId, **fields: Any) -> tuple[Capture, Capture]:  # noqa: ANN401  of a capture
    first, second = (Capture(cell=cell, run=run, **fields) for run in RUNS)
    return first, second

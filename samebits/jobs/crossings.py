"""Runner of crossings, in which one stack saves a model and another stack loads the copy.

Each stack saves a model once, under the digest of everything that determines the files. Each stack
loads the original and every saved copy in one job. The result of a loader is cached under the
digest of what it loaded, so a second run with nothing changed starts no process.

A cached copy is never changed or removed while a run may load it. Copies that no later run may use
(of an unpinned checkpoint, or of ``--fresh``) have unique names and are removed at the end of their
run. Others are removed when no run has used them for a week.

Where every stack leaves a model out for its size, the oldest stack that can makes a small model of
the same kind, and that one is saved and loaded in its place.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from samebits.base.digests import digest_of, digest_of_file
from samebits.base.filestate import is_older
from samebits.base.hashes import hash_of_file
from samebits.jobs.cache import ResultForm, is_repeatable, no_result, run_aside
from samebits.jobs.common import (
    digest_of_inputs,
    identity_of,
    inputs_of,
    loading,
    loading_facts,
    threads_of,
)
from samebits.jobs.inputs import Feeder
from samebits.jobs.records import FedModel, LoadJob, SaveJob
from samebits.records.crossing import Crossing, CrossingsFile, CrossingsReport, SavedModel
from samebits.records.record import read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from samebits.jobs.cache import JobCache, Left
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix, ModelSpec
    from samebits.records.capture import Failure
    from samebits.records.ids import Variant
    from samebits.records.made import MadeModel
    from samebits.stacks.build import Stack
    from samebits.stacks.process import Ended, StackProcess

SIZE_LIMIT = 1 << 30
"""Largest model that is saved, in bytes; each stack's copy stays on disk."""
UNUSED = 7 * 86_400
"""Seconds after which an unused folder is removed; no run lasts that long."""


_OF_FILES = ("subfolder", "variant", "use_safetensors")
"""Arguments of from_pretrained that say which files to read."""


class CrossedModel(NamedTuple):
    """The model of a crossing, in one variant."""

    model: ModelSpec
    variant: Variant
    checkpoint: Checkpoint
    asked_of: MadeModel | None = None
    """What was made, if the checkpoint is that of a made model."""


class CrossingStack(NamedTuple):
    """A stack of a crossing, and its process."""

    stack: Stack
    process: StackProcess


class SavedCopy(NamedTuple):
    """A copy of a model that a stack saved, and the record of the save."""

    folder: Path
    record: SavedModel
    digest: str
    """Digest of ``saved.json``, which lists the hash of every file."""


def rows_to_cross(matrix: Matrix, plan: Plan) -> tuple[PlannedRow, ...]:
    """Return the first CPU row of every model with crossings and at least two stacks."""
    first: dict[str, PlannedRow] = {}
    for row in plan.rows:
        if row.variant.device == "cpu" and matrix.model(row.model).crossings:
            first.setdefault(row.model, row)
    return tuple(row for row in first.values() if len(row.cells) > 1)


class Crosser:
    """Runs the jobs that save and load models, and caches their results."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache
        self._temporary: list[Path] = []

    async def cross(
        self, subject: CrossedModel, parties: Sequence[CrossingStack]
    ) -> CrossingsReport:
        """Save the model in every stack, and load every saved copy in every stack.

        A made model takes the place of one that is too large.
        """
        saved = await self._saved_copies(subject, parties)
        outcomes = {copy.record.outcome for copy in saved.values()}
        if "skipped" in outcomes and "saved" not in outcomes:
            made = await self._made(subject, parties)
            if isinstance(made, CrossedModel):
                report = await self.cross(made, parties)
                return report.model_copy(update={"asked_of": made.asked_of})
            saved = {id: _with_reason(copy, made) for id, copy in saved.items()}
        if not all(self._are_cached(subject, party, _loadable(saved)) for party in parties):
            # the copies are about to be loaded: damaged ones are saved again
            checks = (asyncio.to_thread(_remove_unless_whole, copy) for copy in saved.values())
            if not all(await asyncio.gather(*checks)):
                saved = await self._saved_copies(subject, parties)
        loaded = await asyncio.gather(*(self._load(subject, party, saved) for party in parties))
        return CrossingsReport(
            model=subject.model.name,
            variant=str(subject.variant),
            crossings=tuple(by_saver[saver] for saver in saved for by_saver in loaded),
        )

    def close(self) -> None:
        """Remove copies that no later run may use, and copies that have not been used for long."""
        cutoff = time.time() - UNUSED
        saved = (self._cache.root / "saved").glob("s*")
        unused = [path for path in saved if is_older(path, cutoff)]
        for path in (*self._temporary, *unused):
            remove(path)

    async def _saved_copies(
        self, subject: CrossedModel, parties: Sequence[CrossingStack]
    ) -> dict[str, SavedCopy]:
        """Return the copy of each stack, by stack id."""
        copies = await asyncio.gather(*(self._save(subject, party) for party in parties))
        return {party.stack.id: copy for party, copy in zip(parties, copies, strict=True)}

    async def _made(
        self, subject: CrossedModel, parties: Sequence[CrossingStack]
    ) -> CrossedModel | str:
        """Return a small model of the same kind, or the reason why no stack can make one."""
        reason = ""
        for party in parties:
            copy = await self._save(subject, party, makes=True)
            if copy.record.outcome == "saved" and not await asyncio.to_thread(
                _remove_unless_whole, copy
            ):
                copy = await self._save(subject, party, makes=True)
            if copy.record.outcome == "saved":
                return await self._fed(subject, party, copy)
            failure = copy.record.failure
            reason = reason or copy.record.reason or (failure.in_short if failure else "")
        return reason

    async def _fed(
        self, subject: CrossedModel, party: CrossingStack, copy: SavedCopy
    ) -> CrossedModel:
        """Return a made model with inputs of its own, as its vocabulary is smaller."""
        update = {"source": str(copy.folder), "revision": None, "digest": copy.digest}
        checkpoint = subject.checkpoint.model_copy(update={**update, "inputs": None})
        choosers = [(party.stack, party.process)]
        # save_pretrained writes neither a subfolder nor the files of a variant
        load = {name: v for name, v in subject.model.load.items() if name not in _OF_FILES}
        model = subject.model.model_copy(update={"load": load})
        checkpoint = await Feeder(self._cache).choose(model, checkpoint, choosers)
        return subject._replace(model=model, checkpoint=checkpoint, asked_of=copy.record.made)

    async def _save(
        self, subject: CrossedModel, party: CrossingStack, *, makes: bool = False
    ) -> SavedCopy:
        folder = self._saved_folder(subject, party.stack, makes=makes)
        self._cache.dependencies.file(folder / "saved.json")
        if (cached := _read_saved(folder)) is not None:
            os.utime(folder)
            return cached
        # incomplete, or failed for lack of memory or disk space: no loader uses it
        shutil.rmtree(folder, ignore_errors=True)
        log = folder.with_name(f"{folder.name}.log")
        job = SaveJob(
            **_job_fields(subject, party.stack),
            out=str(folder),
            limit=_limit(subject),
            makes=makes,
            log=str(log),
        )
        ended = await party.process.run(job.as_json())
        self._cache.dependencies.file(folder / "saved.json")
        if _read_saved(folder) is None:
            self._cache.dependencies.mark_unrepeatable(
                f"{subject.model.name} was not saved by {party.stack.id}"
            )
        copy = _read_saved(folder, even_if_transient=True)
        return copy or _failed_save(subject, party.stack, folder, no_result(ended, log))

    def _saved_folder(self, subject: CrossedModel, stack: Stack, *, makes: bool = False) -> Path:
        key = self._facts(subject, stack) | ({"makes": True} if makes else {})
        if self._cache.may_reuse(subject.checkpoint):
            return self._cache.root / "saved" / f"s{digest_of(key)[:23]}"
        folder = self._cache.root / "saved" / f"s{uuid.uuid4().hex[:23]}"
        self._temporary += [folder, folder.with_name(f"{folder.name}.log")]
        return folder

    async def _load(
        self, subject: CrossedModel, party: CrossingStack, saved: Mapping[str, SavedCopy]
    ) -> dict[str, Crossing]:
        """Return the crossings into one stack, by saver."""
        loader = party.stack.id
        ready = _loadable(saved)
        crossings = {saver: _unsaved_crossing(copy.record, loader) for saver, copy in saved.items()}
        if ready:
            crossings |= await self._crossings_of_ready(subject, party, ready)
        return crossings

    async def _crossings_of_ready(
        self, subject: CrossedModel, party: CrossingStack, ready: Mapping[str, SavedCopy]
    ) -> dict[str, Crossing]:
        path = self._result_path(subject, party.stack, ready)
        cached = self._cache.find(path, _FORM, subject.checkpoint)
        if cached is None and await self._cache.fetch(
            subject.checkpoint,
            path,
            lambda: self._cache.find(path, _FORM, subject.checkpoint) is not None,
        ):
            cached = self._cache.find(path, _FORM, subject.checkpoint)
        if cached is not None:
            await self._cache.share(subject.checkpoint, path)
            return {crossing.saver: crossing for crossing in cached.crossings}
        compared = await self._run_loader(subject, party, ready, path)
        crossings = {
            saver: crossing.model_copy(update={"restored": ready[saver].record.restored})
            for saver, crossing in compared.items()
        }
        if subject.checkpoint.pinned and all(map(_is_repeatable, crossings.values())):
            file = CrossingsFile(
                model=subject.model.name,
                variant=str(subject.variant),
                stack=party.stack.id,
                crossings=tuple(crossings.values()),
            )
            self._cache.store.write_json(path, file.model_dump_json(indent=1))
            self._cache.dependencies.file(path)
            await self._cache.share(subject.checkpoint, path)
        else:
            self._cache.dependencies.mark_unrepeatable(
                f"{party.stack.id} loads the copies of {subject.model.name} in every run"
            )
        return crossings

    def _are_cached(
        self, subject: CrossedModel, party: CrossingStack, ready: Mapping[str, SavedCopy]
    ) -> bool:
        """Return True if the result of a loader is cached; False if there is nothing to load."""
        if not ready:
            return False
        path = self._result_path(subject, party.stack, ready)
        return self._cache.find(path, _FORM, subject.checkpoint) is not None

    async def _run_loader(
        self,
        subject: CrossedModel,
        party: CrossingStack,
        ready: Mapping[str, SavedCopy],
        path: Path,
    ) -> dict[str, Crossing]:
        """Run the loader; after a crash, run it again for the copies after the one that crashed."""
        crossings: dict[str, Crossing] = {}
        remaining = list(ready)
        while remaining:
            folders = {saver: str(ready[saver].folder) for saver in remaining}
            left = await self._run_job(subject, party, folders, path)
            if left.result is None:
                ended = left.ended
                return crossings | _crossings_without_original(remaining, party.stack.id, ended)
            crossings |= {crossing.saver: crossing for crossing in left.result.crossings}
            remaining = [saver for saver in remaining if saver not in crossings]
            if remaining:
                crashed = remaining.pop(0)
                crossings[crashed] = Crossing(
                    saver=crashed,
                    loader=party.stack.id,
                    outcome="load failed",
                    failure=no_result(left.ended, left.log),
                )
        return {saver: crossings[saver] for saver in ready}

    async def _run_job(
        self, subject: CrossedModel, party: CrossingStack, folders: Mapping[str, str], path: Path
    ) -> Left[CrossingsFile]:
        """Run one job and return what it left; the file of its result is removed."""

        def job(written: Path) -> LoadJob:
            return LoadJob(
                **_job_fields(subject, party.stack),
                savers=dict(folders),
                result=str(written),
                log=str(path.with_suffix(".log")),
            )

        left = await run_aside(path, CrossingsFile, job, party.process)
        left.written.unlink(missing_ok=True)
        return left

    def _result_path(
        self, subject: CrossedModel, stack: Stack, ready: Mapping[str, SavedCopy]
    ) -> Path:
        facts = self._facts(subject, stack)
        facts["inputs"] = digest_of_inputs(subject.checkpoint)
        facts["savers"] = {saver: copy.digest for saver, copy in ready.items()}
        names = (subject.model.name, str(subject.variant), stack.id)
        return self._cache.path("crossings", *names, facts=facts)

    def _facts(self, subject: CrossedModel, stack: Stack) -> dict[str, Any]:
        """Return everything that determines the bits of a save or a load."""
        checkpoint = subject.checkpoint
        return {
            "model": subject.model.name,
            "variant": str(subject.variant),
            "stack": [stack.id, stack.lock_digest],
            "checkpoint": identity_of(checkpoint),
            **loading_facts(subject.model),
            "limit": _limit(subject),
            "probes": self._cache.probes,
            "machine": self._cache.machine_of(subject.variant),
            "threads": _threads(subject),
        }


def _limit(subject: CrossedModel) -> int:
    """Return the largest size in bytes with which the model is saved."""
    return sys.maxsize if subject.model.large else SIZE_LIMIT


def _threads(subject: CrossedModel) -> int:
    return threads_of(subject.model, subject.checkpoint, subject.variant)


def _job_fields(subject: CrossedModel, stack: Stack) -> dict[str, Any]:
    """Return the fields that both kinds of job share."""
    return {
        "name": subject.model.name,
        "variant_name": str(subject.variant),
        "stack": stack.id,
        "threads": _threads(subject),
        "timeout": subject.model.timeout,
        "variant": subject.variant,
        "model": FedModel(
            **loading(subject.model, subject.checkpoint),
            inputs=inputs_of(subject.checkpoint),
        ),
    }


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is possible."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    path.unlink(missing_ok=True)


def _read_saved(folder: Path, *, even_if_transient: bool = False) -> SavedCopy | None:
    path = folder / "saved.json"
    record = read_record(path, SavedModel)
    if record is None:
        return None
    if not is_repeatable(record) and not even_if_transient:
        return None
    return SavedCopy(folder, record, digest_of_file(path))


def _loadable(saved: Mapping[str, SavedCopy]) -> dict[str, SavedCopy]:
    """Return the copies that can be loaded."""
    return {saver: copy for saver, copy in saved.items() if copy.record.outcome == "saved"}


def _remove_unless_whole(saved: SavedCopy) -> bool:
    """Return True if every file has the hash it was saved with; otherwise remove the folder."""
    try:
        whole = all(hash_of_file(saved.folder / n) == h for n, h in saved.record.files.items())
    except OSError:
        whole = False
    if not whole:
        shutil.rmtree(saved.folder, ignore_errors=True)
    return whole


def _failed_save(subject: CrossedModel, stack: Stack, folder: Path, failure: Failure) -> SavedCopy:
    """Return the record of a save whose process ended without a result."""
    record = SavedModel(
        model=subject.model.name,
        variant=str(subject.variant),
        stack=stack.id,
        outcome="failed",
        failure=failure,
    )
    return SavedCopy(folder, record, "")


def _with_reason(copy: SavedCopy, reason: str) -> SavedCopy:
    """Return a copy that was left out, with the reason why no made model takes its place."""
    if copy.record.outcome != "skipped" or not reason:
        return copy
    text = f"{copy.record.reason}; no smaller model of its kind can be made: {reason}"
    return copy._replace(record=copy.record.model_copy(update={"reason": text}))


def _unsaved_crossing(record: SavedModel, loader: str) -> Crossing:
    """Return the crossing of a copy that was not saved."""
    outcomes = {"failed": "save failed", "skipped": "not tried"}
    reason = record.reason
    if record.outcome == "not loaded" and record.failure is not None:
        kind, first_line = record.failure.type, record.failure.message.partition("\n")[0]
        reason = f"{record.stack} cannot load the original: {kind}: {first_line}"
    return Crossing.model_validate(
        {
            "saver": record.stack,
            "loader": loader,
            "outcome": outcomes.get(record.outcome, "absent"),
            "failure": record.failure if record.outcome == "failed" else None,
            "reason": reason,
        }
    )


def _crossings_without_original(
    savers: Iterable[str], loader: str, ended: Ended
) -> dict[str, Crossing]:
    why = ended.reason or "it ended without an error message"
    reason = f"{loader} wrote no result for the original: {why}"
    return {
        saver: Crossing(saver=saver, loader=loader, outcome="not tried", reason=reason)
        for saver in savers
    }


def _is_repeatable(crossing: Crossing) -> bool:
    """Return True if another run of the same load would give the same result."""
    return crossing.outcome != "not tried" and is_repeatable(crossing)


_FORM = ResultForm(CrossingsFile, lambda file: all(map(_is_repeatable, file.crossings)))

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
import contextlib
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.digests import digest_of
from samebits.base.filestate import is_older
from samebits.base.hashes import hash_of_file
from samebits.jobs.cache import Left, no_result, run_aside
from samebits.jobs.common import (
    ReadyCell,
    digest_of_inputs,
    identity_of,
    job_of,
    loading_facts,
    model_of,
)
from samebits.jobs.inputs import Feeder
from samebits.jobs.lab import Lab
from samebits.questions.crossings.parts import part_crossings
from samebits.questions.crossings.records import (
    LOAD,
    SAVE,
    Crossing,
    CrossingsFile,
    CrossingsOfRow,
    PartCrossing,
    SavedModel,
)
from samebits.records.capture import Failure
from samebits.records.made import MadeModel
from samebits.records.record import read_record
from samebits.stacks.process import Ended
from samebits.storage.prune import STALE_AFTER
from samebits_wire.atomic import remove
from samebits_wire.crossings import LoadJob, SaveJob

SIZE_LIMIT = 1 << 30
"""Largest model that is saved, in bytes; each stack's copy stays on disk."""

_NOT_BESIDE = (".safetensors", ".bin", ".index.json", ".py")
"""Ends of the names of weights, which differ by their sizes, and of code."""

_OF_FILES = ("subfolder", "variant", "use_safetensors")
"""Arguments of from_pretrained that say which files to read."""


class SavedCopy(NamedTuple):
    """A copy of a model that a stack saved, and the record of the save."""

    folder: Path
    record: SavedModel
    digest: str
    """Digest of its record, which lists the hash of every file."""


class Made(NamedTuple):
    """The cells of a crossing with a made model in place of their own."""

    parties: list[ReadyCell]
    asked_of: MadeModel | None


class Into(NamedTuple):
    """The crossings into one stack, by saver: of the models, and of what lies beside them."""

    crossings: dict[str, Crossing]
    parts: dict[str, tuple[PartCrossing, ...]]


class Crosser:
    """Runs the jobs that save and load models, and caches their results."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._cache = lab.cache
        self._temporary: list[Path] = []

    async def cross(self, parties: Sequence[ReadyCell]) -> CrossingsOfRow:
        """Save the model in every stack, and load every saved copy in every stack.

        A made model takes the place of one that is too large.
        """
        saved = await self._saved_copies(parties)
        outcomes = {copy.record.outcome for copy in saved.values()}
        if "skipped" in outcomes and "saved" not in outcomes:
            made = await self._made(parties)
            if isinstance(made, Made):
                report = await self.cross(made.parties)
                loaded = await self._all_loaded(parties, saved)
                parts = _parts(saved, loaded)  # those of the model itself
                changed: dict[str, object] = {"asked_of": made.asked_of, "parts": parts}
                # those of the made model are without its tokenizer
                return report.model_copy(update=changed | {"files": {}})
            saved = {id: _with_reason(copy, made) for id, copy in saved.items()}
        if not await self._are_cached(parties, _loadable(saved)):
            # the copies are about to be loaded: damaged ones are saved again
            checks = (asyncio.to_thread(_remove_unless_whole, copy) for copy in saved.values())
            if not all(await asyncio.gather(*checks)):
                saved = await self._saved_copies(parties)
        loaded = await self._all_loaded(parties, saved)
        return CrossingsOfRow(
            crossings=tuple(into.crossings[saver] for saver in saved for into in loaded),
            parts=_parts(saved, loaded),
            files=_files(saved),
        )

    def close(self) -> None:
        """Remove copies that no later run may use, and copies that have not been used for long."""
        cutoff = time.time() - STALE_AFTER
        saved = (self._cache.root / SAVE.folder).glob("s*")
        unused = [path for path in saved if is_older(path, cutoff)]
        for path in (*self._temporary, *unused):
            remove(path)

    async def _saved_copies(self, parties: Sequence[ReadyCell]) -> dict[str, SavedCopy]:
        """Return the copy of each stack, by stack id."""
        copies = await asyncio.gather(*(self._save(party) for party in parties))
        for copy in copies:
            self._lab.counted(copy.record)
        return {party.stack.id: copy for party, copy in zip(parties, copies, strict=True)}

    async def _made(self, parties: Sequence[ReadyCell]) -> Made | str:
        """Return a small model of the same kind, or the reason why no stack can make one."""
        reason = ""
        for party in parties:
            copy = await self._save(party, makes=True)
            if copy.record.outcome == "saved" and not await asyncio.to_thread(
                _remove_unless_whole, copy
            ):
                copy = await self._save(party, makes=True)
            if copy.record.outcome == "saved":
                return Made(await self._fed(party, copy, parties), copy.record.made)
            failure = copy.record.failure
            reason = reason or copy.record.reason or (failure.in_short if failure else "")
        return reason

    async def _fed(
        self, maker: ReadyCell, copy: SavedCopy, parties: Sequence[ReadyCell]
    ) -> list[ReadyCell]:
        """Return the cells with a made model and inputs of its own, as its vocabulary is smaller."""
        update = {"source": str(copy.folder), "revision": None, "digest": copy.digest}
        checkpoint = maker.checkpoint.model_copy(update={**update, "inputs": None})
        # save_pretrained writes neither a subfolder nor the files of a variant
        load = {name: v for name, v in maker.model.load.items() if name not in _OF_FILES}
        model = maker.model.model_copy(update={"load": load})
        choosers = [(maker.stack, maker.process)]
        checkpoint = await Feeder(self._cache).choose(model, checkpoint, choosers)
        return [party._replace(model=model, checkpoint=checkpoint) for party in parties]

    async def _save(self, party: ReadyCell, *, makes: bool = False) -> SavedCopy:
        folder = self._saved_folder(party, makes=makes)
        self._cache.dependencies.file(folder / "saved.json")
        if (cached := _read_saved(folder)) is not None:
            os.utime(folder)
            return cached
        # incomplete, or failed for lack of memory or disk space: no loader uses it
        shutil.rmtree(folder, ignore_errors=True)
        job: SaveJob = {
            **job_of(party, folder),
            "kind": "crossings.save",
            "model": model_of(party.model, party.checkpoint),
            "out": str(folder),
            "limit": _limit(party),
            "makes": makes,
        }
        ended = await party.process.run(job)
        self._cache.dependencies.file(folder / "saved.json")
        if _read_saved(folder) is None:
            self._cache.dependencies.mark_unrepeatable(
                f"{party.model.name} was not saved by {party.stack.id}"
            )
        copy = _read_saved(folder, even_if_transient=True)
        return copy or _failed_save(party, folder, no_result(ended, Path(job["log"])))

    def _saved_folder(self, party: ReadyCell, *, makes: bool = False) -> Path:
        key = self._facts(party) | ({"makes": True} if makes else {})
        if self._cache.may_reuse(party.checkpoint):
            return self._cache.root / SAVE.folder / f"s{digest_of(key)[:23]}"
        folder = self._cache.root / SAVE.folder / f"s{uuid.uuid4().hex[:23]}"
        self._temporary += [folder, folder.with_name(f"{folder.name}.log")]
        return folder

    async def _all_loaded(
        self, parties: Sequence[ReadyCell], saved: Mapping[str, SavedCopy]
    ) -> list[Into]:
        return await asyncio.gather(*(self._load(party, saved) for party in parties))

    async def _load(self, party: ReadyCell, saved: Mapping[str, SavedCopy]) -> Into:
        """Return the crossings into one stack, by saver."""
        loader = party.stack.id
        ready = _loadable(saved)
        crossings = {saver: _unsaved_crossing(copy.record, loader) for saver, copy in saved.items()}
        file = await self._file_of_ready(party, ready) if ready else None
        crossings |= {c.saver: c for c in (file.crossings if file else ())}
        records = {saver: copy.record for saver, copy in saved.items()}
        return Into(crossings, part_crossings(records, loader, file.parts if file else None))

    async def _file_of_ready(
        self, party: ReadyCell, ready: Mapping[str, SavedCopy]
    ) -> CrossingsFile:
        """Return what a loader wrote, cached or new."""
        path = self._result_path(party, ready)
        cached = await self._cache.find(path, CrossingsFile, party.checkpoint)
        if cached is not None:
            self._lab.counted(cached)
            return cached
        compared, last = await self._run_loader(party, ready, path)
        crossings = (
            crossing.model_copy(update={"restored": ready[saver].record.restored})
            for saver, crossing in compared.items()
        )
        file = CrossingsFile(
            cell=party.cell,
            crossings=tuple(crossings),
            parts=last.parts if last is not None else None,
            entered=last.entered if last is not None else {},
        )
        self._lab.counted(file)
        if party.checkpoint.pinned and file.is_repeatable:
            with contextlib.suppress(OSError):  # without room on the disk it is loaded again
                self._cache.store.write_json(path, file.model_dump_json(indent=1))
            self._cache.dependencies.file(path)
            await self._cache.share(party.checkpoint, path)
        else:
            self._cache.dependencies.mark_unrepeatable(
                f"{party.stack.id} loads the copies of {party.model.name} in every run"
            )
        return file

    async def _are_cached(
        self, parties: Sequence[ReadyCell], ready: Mapping[str, SavedCopy]
    ) -> bool:
        """Return True if the results of all loaders are cached; False if there is nothing to load."""
        cached = [
            await self._cache.find(self._result_path(party, ready), CrossingsFile, party.checkpoint)
            for party in parties
            if ready
        ]
        return bool(cached) and None not in cached

    async def _run_loader(
        self, party: ReadyCell, ready: Mapping[str, SavedCopy], path: Path
    ) -> tuple[dict[str, Crossing], CrossingsFile | None]:
        """Run the loader; after a crash, run it again for the copies after the one that crashed.

        Return the crossings of the models, and what the last job wrote.
        """
        crossings: dict[str, Crossing] = {}
        folders = {saver: str(copy.folder) for saver, copy in ready.items()}
        models = [saver for saver, copy in ready.items() if copy.record.outcome == "saved"]
        remaining, last = list(models), None
        while remaining or (last is None or last.parts is None):
            left = await self._run_job(party, folders, remaining, path)
            last = left.result or last
            if left.result is None:
                lost = _crossings_without_original(remaining, party.stack.id, left.ended)
                crossings |= lost
                if not remaining:
                    break
                remaining = []  # what lies beside the models may load all the same
                continue
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
            elif left.result.parts is None:
                break  # it crashed there
        return {saver: crossings[saver] for saver in models}, last

    async def _run_job(
        self, party: ReadyCell, folders: Mapping[str, str], models: Sequence[str], path: Path
    ) -> Left[CrossingsFile]:
        """Run one job and return what it left; the file of its result is removed."""

        def job(written: Path) -> LoadJob:
            return {
                **job_of(party, path),
                "kind": "crossings.load",
                "model": model_of(party.model, party.checkpoint),
                "copies": dict(folders),
                "models": list(models),
                "result": str(written),
            }

        left = await run_aside(path, CrossingsFile, job, party.process)
        left.written.unlink(missing_ok=True)
        return left

    def _result_path(self, party: ReadyCell, ready: Mapping[str, SavedCopy]) -> Path:
        facts = self._facts(party)
        facts["inputs"] = digest_of_inputs(party.checkpoint)
        facts["savers"] = {saver: copy.digest for saver, copy in ready.items()}
        return self._cache.path_of_cell(LOAD.folder, party.cell, facts)

    def _facts(self, party: ReadyCell) -> dict[str, Any]:
        """Return everything that determines the bits of a save or a load."""
        return {
            "cell": str(party.cell),
            "stack": party.stack.lock_digest,
            "checkpoint": identity_of(party.checkpoint),
            **loading_facts(party.model),
            "limit": _limit(party),
            "probes": self._cache.probes,
            "machine": self._cache.machine_of(party.cell.variant),
            "threads": party.threads,
        }


def _limit(party: ReadyCell) -> int:
    """Return the largest size in bytes with which the model is saved."""
    return sys.maxsize if party.model.large else SIZE_LIMIT


def _read_saved(folder: Path, *, even_if_transient: bool = False) -> SavedCopy | None:
    path = folder / "saved.json"
    record = read_record(path, SavedModel)
    if record is None:
        return None
    if not record.is_repeatable and not even_if_transient:
        return None
    # which functions ran may depend on what the stack's process had imported before
    facts = record.model_dump(mode="json", exclude={"entered"})
    return SavedCopy(folder, record, digest_of(facts))


def _loadable(saved: Mapping[str, SavedCopy]) -> dict[str, SavedCopy]:
    """Return the copies that can be loaded."""
    return {saver: copy for saver, copy in saved.items() if copy.record.is_loadable}


def _parts(saved: Mapping[str, SavedCopy], loaded: Sequence[Into]) -> tuple[PartCrossing, ...]:
    return tuple(part for saver in saved for into in loaded for part in into.parts[saver])


def _files(saved: Mapping[str, SavedCopy]) -> dict[str, tuple[str, ...]]:
    """Return the names of the files of each stack that saved the model, its tokenizer and its processor."""
    return {
        stack: tuple(sorted(n for n in copy.record.files if not n.endswith(_NOT_BESIDE)))
        for stack, copy in saved.items()
        if copy.record.outcome == "saved"
        and all(part.outcome == "saved" for part in copy.record.parts.values())
    }


def _remove_unless_whole(saved: SavedCopy) -> bool:
    """Return True if every file has the hash it was saved with; otherwise remove the folder."""
    try:
        whole = all(hash_of_file(saved.folder / n) == h for n, h in saved.record.files.items())
    except OSError:
        whole = False
    if not whole:
        shutil.rmtree(saved.folder, ignore_errors=True)
    return whole


def _failed_save(party: ReadyCell, folder: Path, failure: Failure) -> SavedCopy:
    """Return the record of a save whose process ended without a result."""
    record = SavedModel(cell=party.cell, outcome="failed", failure=failure)
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
        exception = f"{record.failure.type}: {record.failure.first_line}"
        reason = f"{record.cell.stack} cannot load the original: {exception}"
    return Crossing.model_validate(
        {
            "saver": record.cell.stack,
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
